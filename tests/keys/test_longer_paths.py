"""Two designs for sealed paths of more than four regions, as models: docs/explanation/reasons.md.

*Shares made anew*: a replica adds up the sub-shares of k senders to one new share. It keeps Theorem 1, and loses
Theorem 2: replicas of one region have to add up the same senders, and no rule makes them do so.

*A key for each replica*, which `keys.wrapping` is: a replica seals its values under its own key, passes them on to all,
and splits only the key for the next region. Shares grow by n^2 a region in place of n times. All placements of f bad
replicas a region are enumerated: they derive nothing (Theorem 1), and a reader opens whatever they drop or spoil
(Theorems 2 and 3).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import combinations, product

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys import shamir

K_BYTES = 32
Senders = frozenset[int]


def faulty(n: int) -> int:
    return (n - 1) // 2


def threshold(n: int) -> int:
    return n // 2 + 1


def split(rng: random.Random, value: bytes, n: int) -> dict[int, bytes]:
    shares = shamir.split(value, threshold(n), n, rng.randbytes((threshold(n) - 1) * K_BYTES))
    return dict(enumerate(shares, 1))


# -------------------------------------------------------------------------------------------- shares made anew


def rules(n: int) -> Iterable[Callable[[Senders], Senders]]:
    """Every rule by which a replica may choose k senders of those that it heard."""
    places = range(1, n + 1)
    heard = [frozenset(c) for size in range(threshold(n), n + 1) for c in combinations(places, size)]
    choices = [[frozenset(c) for c in combinations(sorted(each), threshold(n))] for each in heard]
    for chosen in product(*choices):
        yield dict(zip(heard, chosen, strict=True)).__getitem__


def parted(rule: Callable[[Senders], Senders], n: int) -> tuple[Senders, Senders] | None:
    """Two sets of senders that two honest replicas may hear, of f bad ones at most, and of which they choose others."""
    places = frozenset(range(1, n + 1))
    for bad in map(frozenset, combinations(sorted(places), faulty(n))):
        told = [places - bad | frozenset(c) for size in range(len(bad) + 1) for c in combinations(sorted(bad), size)]
        for one, other in combinations(told, 2):
            if rule(one) != rule(other):
                return one, other
    return None


@pytest.mark.parametrize(("n", "count"), [(3, 3), (5, 10_240)])
def test_no_rule_makes_all_honest_replicas_add_up_the_same_senders(n: int, count: int) -> None:
    found = [parted(rule, n) for rule in rules(n)]
    assert len(found) == count
    assert None not in found


def test_shares_of_other_senders_do_not_fit_together() -> None:
    """One bad sender of three tells one replica only, and nobody can tell that the secret is another one."""
    rng = random.Random(1)
    secret = rng.randbytes(K_BYTES)
    subshares = {sender: split(rng, share, 3) for sender, share in split(rng, secret, 3).items()}

    def new_share(replica: int, senders: tuple[int, ...]) -> bytes:
        return shamir.interpolate(senders, [subshares[sender][replica] for sender in senders])

    assert shamir.combine({1: new_share(1, (1, 2)), 2: new_share(2, (1, 2))}) == secret
    assert shamir.combine({1: new_share(1, (1, 2)), 2: new_share(2, (2, 3))}) != secret


# ------------------------------------------------------------------------------------------ a key for each replica

Value = tuple[int, int, int]
"""(region, sender's place in the region before, place): the sub-share of the sender's key. Sender 0: of the secret."""
Key = tuple[int, int]
"""(region, place). In region 1 the key is the share itself."""


def derived(sizes: Sequence[int], bad: Mapping[int, Collection[int]]) -> bool:
    """Whether all that bad replicas hold, with every sealed value, gives the secret: the closure of two steps.

    A key gives the values sealed under it, and k sub-shares give a key.
    """
    keys: set[Key] = set()
    values: set[Value] = set()
    for region, places in bad.items():
        before = sizes[region - 2] if region > 1 else 0
        values |= {(region, sender, place) for place in places for sender in (range(1, before + 1) or (0,))}
        keys |= {(region, place) for place in places}
    news = True
    while news:
        opened = {(r, s, p) for r, n in enumerate(sizes, 1) if r > 1 for p in range(1, n + 1) if (r, p) in keys
                  for s in range(1, sizes[r - 2] + 1)}  # fmt: skip
        news = bool(opened - values)
        values |= opened
        made = {(r, s) for r, n in enumerate(sizes[:-1], 1) for s in range(1, n + 1)
                if sum((r + 1, s, p) in values for p in range(1, sizes[r] + 1)) >= threshold(sizes[r])}  # fmt: skip
        news = news or bool(made - keys)
        keys |= made
    return sum((1, place) in keys for place in range(1, sizes[0] + 1)) >= threshold(sizes[0])


def placements(sizes: Sequence[int]) -> Iterable[dict[int, tuple[int, ...]]]:
    """Every placement of exactly f bad replicas in each region: fewer know less."""
    for places in product(*[list(combinations(range(1, n + 1), faulty(n))) for n in sizes]):
        yield dict(enumerate(places, 1))


@pytest.mark.parametrize("sizes", [(3,) * 6, (5,) * 3, (3, 5, 3, 5)], ids=str)
def test_no_coalition_of_f_a_region_derives_the_secret(sizes: tuple[int, ...]) -> None:
    found = [derived(sizes, bad) for bad in placements(sizes)]
    assert found
    assert not any(found)


@pytest.mark.parametrize("region", [1, 3, 6])
def test_one_more_in_any_region_derives_the_secret_where_it_knows_that_region_s_keys(region: int) -> None:
    """So the closure can tell: k keys of one region give all keys of the region before."""
    sizes = (3,) * 6
    assert derived(sizes, {region: (1, 2)})
    assert not derived(sizes, {region: (1,)})


@dataclass
class Path:
    """Real values along regions of `sizes`, of which `bad` replicas spoil all that they say."""

    sizes: Sequence[int]
    bad: Mapping[int, Collection[int]]
    spoil: Callable[[bytes], bytes | None]
    rng: random.Random
    sealed: dict[Value, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.secret = self.rng.randbytes(K_BYTES)
        shares = split(self.rng, self.secret, self.sizes[0])
        self.commitments = {place: sha256(share).digest() for place, share in shares.items()}
        keys = shares
        for region in range(1, len(self.sizes)):
            told = {place: split(self.rng, key, self.sizes[region]) for place, key in keys.items()}
            held = {(region + 1, sender, place): self.says(region, sender, value)
                    for sender, values in told.items() for place, value in values.items()}  # fmt: skip
            if region + 1 == len(self.sizes):
                self.last = {name: self.says(region + 1, name[2], value) for name, value in held.items() if value}
                return
            keys = {place: self.rng.randbytes(K_BYTES) for place in range(1, self.sizes[region] + 1)}
            for name, value in held.items():
                said = self.says(region + 1, name[2], value) if value else None
                if said:
                    self.sealed[name] = AESGCM(keys[name[2]]).encrypt(bytes(12), said, repr(name).encode())

    def says(self, region: int, place: int, value: bytes) -> bytes | None:
        return self.spoil(value) if place in self.bad.get(region, ()) else value

    def opened(self) -> bytes | None:
        """The secret as an authorised reader finds it: level by level, and only keys that open something count."""
        values = {name: value for name, value in self.last.items() if value}
        for region in range(len(self.sizes) - 1, 0, -1):
            n, keys = self.sizes[region], dict[int, bytes]()
            for sender in range(1, self.sizes[region - 1] + 1):
                told = {place: values[region + 1, sender, place] for place in range(1, n + 1)
                        if (region + 1, sender, place) in values}  # fmt: skip
                for places in combinations(told, threshold(n)):
                    key = shamir.combine({place: told[place] for place in places})
                    if self.fits(region, sender, key):
                        keys[sender] = key
            if region == 1:
                return shamir.combine(dict(list(keys.items())[: threshold(self.sizes[0])])) if keys else None
            values = dict(self.unsealed(region, keys))
        return None

    def fits(self, region: int, place: int, key: bytes) -> bool:
        if region == 1:
            return sha256(key).digest() == self.commitments[place]
        return any(True for _ in self.unsealed(region, {place: key}))

    def unsealed(self, region: int, keys: Mapping[int, bytes]) -> Iterable[tuple[Value, bytes]]:
        for name, ciphertext in self.sealed.items():
            if name[0] == region and name[2] in keys:
                try:
                    yield name, AESGCM(keys[name[2]]).decrypt(bytes(12), ciphertext, repr(name).encode())
                except InvalidTag:
                    continue


def silent(value: bytes) -> None:
    return None


def garbage(value: bytes) -> bytes:
    return sha256(value).digest()


@pytest.mark.long
@pytest.mark.parametrize("spoil", [silent, garbage])
@pytest.mark.parametrize("sizes", [(3, 3, 3, 3, 3), (5, 5, 5)], ids=str)
def test_a_reader_opens_whatever_f_a_region_drop_or_spoil(
    sizes: tuple[int, ...], spoil: Callable[[bytes], bytes | None]
) -> None:
    rng = random.Random(7)
    chosen = list(placements(sizes))
    for bad in chosen if len(chosen) < 300 else rng.sample(chosen, 100):
        path = Path(sizes, bad, spoil, rng)
        assert path.opened() == path.secret, bad


def test_ten_regions_open_and_cost_nine_values_a_region() -> None:
    rng = random.Random(3)
    path = Path((3,) * 10, {region: (1 + region % 3,) for region in range(1, 11)}, garbage, rng)
    assert path.opened() == path.secret
    assert len(path.sealed) == 8 * 9
    assert len(path.last) == 9


def test_more_than_f_in_one_region_stop_it() -> None:
    """So the reader above can fail."""
    path = Path((3, 3, 3, 3), {3: (1, 2)}, garbage, random.Random(3))
    assert path.opened() != path.secret
