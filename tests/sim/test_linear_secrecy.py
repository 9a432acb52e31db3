"""What at most f bad replicas of every region see together is independent of the secret (A5, docs/protocol.md §1, §3).

Not that no way to recombine is known: for each coalition a direction is found along which the secret takes any of its
256 values, byte by byte, while nothing that the coalition sees moves. So each candidate secret fits its view with
equally many choices of the coefficients, and those are uniform: the view says nothing. `linearview` builds the rows
from the definition; they are checked against what `keys.sharetree` really splits.

Only coalitions of exactly f are enumerated: the rows that fewer see are a part of the rows that some f see, and the
same direction serves them. No other symmetry is used. Paths of 1, 2 and 3 regions with 3 or 5 replicas each have
13 + 169 + 2,197 = 2,379 such placements: 3 for n = 3 and 10 for n = 5, multiplied along the path.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import product

import pytest

from keys import gf256, shamir
from keys.sharetree import Hop, Place, Share, first_split, resplit
from tests.sim.linearview import (
    TIMES,
    Bad,
    Overlay,
    Path,
    Rows,
    Span,
    coefficients,
    faulty,
    orthogonal,
    plus,
    threshold,
    value,
)

pytestmark = pytest.mark.invariant(1)

SIZES = (3, 5)
BRANCHES = {
    "fork": Overlay({1: 3, 2: 3, 3: 3}, {1: (2, 3)}),
    "fork of five": Overlay({1: 5, 2: 5, 3: 5}, {1: (2, 3)}),
    "comb": Overlay({1: 3, 2: 3, 3: 3, 4: 3, 5: 3}, {1: (2, 3), 2: (4, 5)}),
}


def paths(hops: int) -> list[tuple[int, ...]]:
    return list(product(SIZES, repeat=hops))


def assert_independent(rows: Rows, bad: dict[int, tuple[int, ...]]) -> bytes:
    """The secret is no combination of the view, and a direction shows it; returns the direction."""
    view = rows.view(bad)
    span = Span(view)
    assert rows.of[()] not in span
    direction = span.direction(rows.secret)
    assert direction is not None
    assert direction[rows.secret] == 1
    assert all(orthogonal(row, direction) for row in view)
    return direction


def check_placements(overlay: Overlay) -> int:
    rows = Rows(overlay)
    count = 0
    for bad in overlay.placements():
        assert_independent(rows, bad)
        count += 1
    return count


# ------------------------------------------------------------------------------------------------ placements


def test_every_placement_on_one_and_two_regions() -> None:
    """13 placements on one region, 169 on two."""
    assert [sum(check_placements(Overlay.line(counts)) for counts in paths(hops)) for hops in (1, 2)] == [13, 169]


def test_every_placement_on_three_regions() -> None:
    """2,197 placements: of (3 + 10) ** 3, 1,000 on the path of three regions of five."""
    assert sum(check_placements(Overlay.line(counts)) for counts in paths(3)) == 2197


@pytest.mark.parametrize("counts", [(7, 7), (7, 7, 7), (7, 7, 7, 7)])
def test_random_placements_on_regions_of_seven(counts: Sequence[int]) -> None:
    rng = random.Random(len(counts))
    rows = Rows(Overlay.line(counts))
    for _ in range(3):
        assert_independent(rows, {region: tuple(rng.sample(range(1, 8), 3)) for region in rows.overlay.counts})


@pytest.mark.parametrize("counts", [(4,), (4, 6), (6, 4, 3), (1, 3), (3, 1), (3, 2, 3)])
def test_regions_of_an_even_number_and_trusted_ones(counts: Sequence[int]) -> None:
    """A region of one or two has f = 0: nobody bad is there. Four and six are no better than three, five."""
    assert check_placements(Overlay.line(counts)) > 0


@pytest.mark.parametrize(("name", "count"), [("fork", 27), ("fork of five", 1000), ("comb", 243)])
def test_every_placement_on_trees_of_regions(name: str, count: int) -> None:
    """f bad replicas in *each* branch. Two views of one region are two branches as well: labels name the view."""
    assert check_placements(BRANCHES[name]) == count


# ------------------------------------------------------------------------------------------- two open trees

RING = dict.fromkeys(range(1, 5), 3)
ROW = Overlay(RING, {1: (2,), 2: (3,), 3: (4,)})
SWAPPED = Overlay(RING, {1: (2, 4), 4: (3,)})


def beside(row: bytes, other: bytes, one_secret: bool) -> bytes:
    """A row of each tree over the unknowns of both: each has coefficients of its own, and one secret or its own."""
    secrets = plus(row[-1:], other[-1:]) if one_secret else row[-1:] + other[-1:]
    return row[:-1] + other[:-1] + secrets


@pytest.mark.parametrize("one_secret", [True, False], ids=["one value sealed anew", "a key of each"])
def test_every_placement_while_two_trees_are_open(one_secret: bool) -> None:
    """The same f replicas of each region see what goes along both: 81 placements on four regions of three."""
    former, newest = Rows(ROW), Rows(SWAPPED)
    joined = partial(beside, one_secret=one_secret)
    none, nothing = bytes(former.secret + 1), bytes(newest.secret + 1)
    secrets = [joined(former.of[()], nothing), joined(none, newest.of[()])]

    def seen(bad: Bad) -> Span:
        along_both = [joined(row, nothing) for row in former.view(bad)] + [
            joined(none, row) for row in newest.view(bad)
        ]
        return Span(along_both)

    placements = list(ROW.placements())
    for bad in placements:
        span = seen(bad)
        assert not any(secret in span for secret in secrets)
        assert one_secret or plus(*secrets) not in span, "nor what both together say"
    assert all(secret in seen({1: (1, 2)}) for secret in secrets), "k of one region are too many"
    assert len(placements) == 81


# ------------------------------------------------------------------------------- what the rows can tell apart


@pytest.mark.parametrize("counts", [(3,), (3, 3), (3, 3, 3), (5, 3), (3, 5, 5)])
def test_one_more_bad_replica_in_any_one_region_determines_the_secret(counts: Sequence[int]) -> None:
    rows = Rows(Overlay.line(counts))
    for region, n in rows.overlay.counts.items():
        majority = tuple(range(n - threshold(n) + 1, n + 1))
        assert rows.of[()] in Span(rows.view({region: majority}))
        assert rows.of[()] not in Span(rows.view({region: majority[1:]}))


@pytest.mark.parametrize("n", [3, 5])
def test_one_polynomial_for_two_next_regions_would_leak(n: int) -> None:
    """Why the next region is part of what coefficients are derived from: f places in each branch add up to k."""
    overlay = Overlay({1: n, 2: n, 3: n}, {1: (2, 3)})
    f = faulty(n)
    low, high = tuple(range(1, f + 1)), tuple(range(f + 1, 2 * f + 1))
    apart = {1: (), 2: low, 3: high}
    related = Rows(overlay, related=True)
    assert related.of[()] in Span(related.view(apart))
    assert_independent(Rows(overlay), apart)


def test_a_relay_that_does_not_split_anew_leaks() -> None:
    """Algorithm 1: the values of the publisher's split, in the clear, at bad places of different columns."""
    rows = Rows(Overlay.line((3,)))
    relayed = [rows.of[(1, 1),], rows.of[(1, 2),]]
    assert rows.of[()] in Span(relayed)
    assert rows.of[()] not in Span(relayed[:1])


# ---------------------------------------------------------------------------------------------- real splits


class Real:
    """One secret, really split down an overlay by `keys.sharetree`, and its unknowns as those of `Rows`."""

    def __init__(self, overlay: Overlay, seed: int) -> None:
        rng = random.Random(seed)
        self.rows = Rows(overlay)
        self.secret = rng.randbytes(32)
        digest = rng.randbytes(32)
        seeds = {(r, x): rng.randbytes(32) for r, n in overlay.counts.items() for x in range(1, n + 1)}
        hops = {region: Hop(region, 1, threshold(n), n) for region, n in overlay.counts.items()}
        self.random = rng.randbytes(32 * (hops[overlay.home].threshold - 1))
        shares: dict[Path, Share] = {}
        for path, region in overlay.splits():
            parts = (
                resplit(shares[path], digest, hops[region], seeds[path[-1]])
                if path
                else first_split(self.secret, hops[region], self.random)
            )
            for place, share in enumerate(parts, 1):
                assert share.label == (*(Place(r, 1, x) for r, x in path), Place(region, 1, place))
                shares[*path, (region, place)] = share
        self.values = {(): self.secret, **{path: share.value for path, share in shares.items()}}
        self.unknowns = [b""] * (self.rows.secret + 1)
        self.unknowns[-1] = self.secret
        for path, region in overlay.splits():
            n = overlay.counts[region]
            values = [self.values[*path, (region, place)] for place in range(1, n + 1)]
            for exponent, c in enumerate(coefficients(n, self.values[path], values), 1):
                self.unknowns[self.rows.column[path, region, exponent]] = c


REAL = [Overlay.line((3,)), Overlay.line((5, 3)), Overlay.line((3, 3, 3)), Overlay.line((3, 5, 3)), BRANCHES["comb"]]


@pytest.mark.parametrize("overlay", REAL, ids=lambda o: "-".join(map(str, o.counts.values())))
def test_the_rows_are_what_the_share_tree_computes(overlay: Overlay) -> None:
    """Coefficients are recovered from the first k - 1 values of each split; the rows then predict all n."""
    real = Real(overlay, 1)
    for path, row in real.rows.of.items():
        assert value(row, real.unknowns) == real.values[path]
    own = real.unknowns[:-1]
    assert len(set(own)) == len(own), "two splits share a coefficient"
    first = [real.unknowns[real.rows.column[(), 1, e]] for e in range(1, threshold(overlay.counts[1]))]
    assert b"".join(first) == real.random


@pytest.mark.parametrize("overlay", REAL, ids=lambda o: "-".join(map(str, o.counts.values())))
def test_another_secret_splits_into_the_very_values_that_the_coalition_saw(overlay: Overlay) -> None:
    """All 32 bytes of the secret exchanged, split again by `keys.shamir`: the view is byte for byte the same."""
    real = Real(overlay, 2)
    rng = random.Random(3)
    every = list(overlay.placements())
    for bad in rng.sample(every, min(len(every), 12)):
        direction = assert_independent(real.rows, bad)
        other = rng.randbytes(32)
        difference = plus(other, real.secret)
        moved = [
            plus(unknown, difference.translate(TIMES[factor]))
            for unknown, factor in zip(real.unknowns, direction, strict=True)
        ]
        again = {(): other}
        for path, region in overlay.splits():
            n, k = overlay.counts[region], threshold(overlay.counts[region])
            chosen = b"".join(moved[real.rows.column[path, region, exponent]] for exponent in range(1, k))
            for place, part in enumerate(shamir.split(again[path], k, n, chosen), 1):
                again[*path, (region, place)] = part
        seen = real.rows.received(bad)
        assert seen
        assert [again[path] for path in seen] == [real.values[path] for path in seen]
        assert again != real.values


def test_the_field_is_that_of_the_keys_package() -> None:
    assert TIMES == gf256.MUL_TABLE
