"""Shares of one key as a subscriber gets them when bad replicas altered some, for tests and benches of the search."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import comb, prod

from keys.columnsearch import ColumnSearch
from keys.sharetree import Hop, Share, first_split, resplit
from tests.sim.linearview import faulty, threshold

SHIFT = random.Random(0).randbytes(32)


@dataclass
class Key:
    """A secret, split down a path by honest replicas."""

    hops: tuple[Hop, ...]
    secret: bytes
    level1: dict[int, bytes]
    shares: list[Share]

    def search(self, shares: Sequence[Share]) -> ColumnSearch:
        """With all of these at hand; nothing is worked out yet."""
        search = ColumnSearch(
            self.hops, lambda place, value: self.level1[place] == value, lambda secret: secret == self.secret
        )
        search.add_shares(shares)
        return search


@lru_cache(maxsize=4)
def split(counts: tuple[int, ...]) -> Key:
    rng = random.Random(str(counts))
    hops = tuple(Hop(region, 1, threshold(n), n) for region, n in enumerate(counts, 1))
    secret, digest = rng.randbytes(32), rng.randbytes(32)
    shares = first_split(secret, hops[0], rng.randbytes(32 * (hops[0].threshold - 1)))
    level1 = {share.places[0]: share.value for share in shares}
    for before, hop in pairwise(hops):
        seeds = {place: rng.randbytes(32) for place in range(1, before.count + 1)}
        shares = [part for share in shares for part in resplit(share, digest, hop, seeds[share.places[-1]])]
    return Key(hops, secret, level1, shares)


def lied(key: Key, bad: Sequence[tuple[int, ...]], together: bool = False) -> list[Share]:
    """What arrives: each share that went through a bad place altered, by its own amount or (`together`) all by one."""
    rng = random.Random(1)
    arrived = []
    for share in key.shares:
        if any(place in places for place, places in zip(share.places, bad, strict=True)):
            shift = int.from_bytes(SHIFT if together else rng.randbytes(32))
            arrived.append(replace(share, value=(int.from_bytes(share.value) ^ shift).to_bytes(32)))
        else:
            arrived.append(share)
    return arrived


def worst(key: Key) -> list[Share]:
    """f liars on the first places of every region: the one honest choice is the last in order."""
    return lied(key, [tuple(range(1, faulty(hop.count) + 1)) for hop in key.hops])


def bound(counts: Sequence[int]) -> int:
    """How many choices there are: C(n, k) for every region after the first."""
    return prod(comb(n, threshold(n)) for n in counts[1:])
