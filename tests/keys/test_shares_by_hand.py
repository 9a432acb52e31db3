"""Shares of a key counted out beside the live functions: a field and an interpolation of their own (A5, A8).

Every share that any replica of a path gets is made by the live functions. Whoever has k of the shares that one share
was split into has that share, and whoever has fewer has any value as likely: that is all that the model knows.
"""

from __future__ import annotations

from itertools import combinations, product

import pytest

from keys.sharetree import Hop, Share, first_split, resplit

SECRET = bytes(range(32))
Way = tuple[int, ...]


def times(a: int, b: int) -> int:
    """In the field of FIPS 197: shift and add, without tables."""
    found = 0
    while b:
        found ^= a * (b & 1)
        a, b = (a << 1) ^ (0x11B if a & 0x80 else 0), b >> 1
    return found


def inverse(a: int) -> int:
    return next(b for b in range(1, 256) if times(a, b) == 1)


def at_zero(points: dict[int, bytes]) -> bytes:
    """The value at 0 of the polynomials through these points (Lagrange)."""
    found = [0] * 32
    for x, value in points.items():
        weight = 1
        for other in points.keys() - {x}:
            weight = times(weight, times(other, inverse(other ^ x)))
        found = [known ^ times(weight, byte) for known, byte in zip(found, value, strict=True)]
    return bytes(found)


def every_share(size: int, regions: int) -> dict[Way, bytes]:
    """By the places that it went through, what each replica of each region gets."""
    hops = [Hop(region, 1, size // 2 + 1, size) for region in range(1, regions + 1)]
    shares: list[Share] = first_split(SECRET, hops[0], bytes(range(64, 64 + 32 * (size // 2))))
    found = {share.places: share.value for share in shares}
    for depth, hop in enumerate(hops[1:], 1):
        seeds = {place: bytes([depth, place]) * 16 for place in range(1, size + 1)}
        shares = [sub for share in shares for sub in resplit(share, bytes(32), hop, seeds[share.places[-1]])]
        found |= {share.places: share.value for share in shares}
    return found


def known_to(members: list[frozenset[int]], size: int, whole: bool) -> set[Way]:
    """The shares that these places of each region have or can make of what they have; () is the secret. `whole`: they
    are the ones that deliver, so that only the last region's shares count."""
    depths = [len(members)] if whole else range(1, len(members) + 1)
    known = {
        way for depth in depths for way in product(range(1, size + 1), repeat=depth)
        if (all(place in members[at] for at, place in enumerate(way)) if whole else way[-1] in members[depth - 1])
    }  # fmt: skip
    for depth in range(len(members) - 1, -1, -1):
        for way in product(range(1, size + 1), repeat=depth):
            if sum((*way, place) in known for place in range(1, size + 1)) >= size // 2 + 1:
                known.add(way)
    return known


@pytest.mark.parametrize(("size", "regions"), [(3, 1), (3, 2), (3, 3), (5, 1), (5, 2)])
def test_every_placement_of_f_bad_ones_reads_nothing_and_the_rest_delivers(size: int, regions: int) -> None:
    everybody = frozenset(range(1, size + 1))
    bad_ones = [frozenset(each) for each in combinations(everybody, (size - 1) // 2)]
    for placement in product(bad_ones, repeat=regions):
        assert () not in known_to(list(placement), size, whole=False)
        assert () in known_to([everybody - bad for bad in placement], size, whole=True)
    more = [frozenset(range(1, size // 2 + 2)), *[bad_ones[0]] * (regions - 1)]
    assert () in known_to(more, size, whole=False), "k of one region read it"


@pytest.mark.parametrize(("size", "regions"), [(3, 3), (5, 2)])
def test_the_live_shares_are_those_of_the_model(size: int, regions: int) -> None:
    shares = {(): SECRET} | every_share(size, regions)
    for depth in range(1, regions + 1):
        assert sum(len(way) == depth for way in shares) == size**depth, "p r^h (A8)"
    for way, value in shares.items():
        if len(way) == regions:
            continue
        below = {place: shares[*way, place] for place in range(1, size + 1)}
        for enough in combinations(below, size // 2 + 1):
            assert at_zero({place: below[place] for place in enough}) == value
        few = {place: below[place] for place in range(1, size // 2 + 1)}
        assert at_zero(few) != value
        assert len({*below.values(), value}) == size + 1, "no share is another one, or the whole"
