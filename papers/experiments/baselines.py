"""Schemes the secret-forwarding paper rejects, and the attacks for which it does (A3, A4; Figures 3 and 4).

A secret goes down a path of virtual nodes. Algorithm 1 passes the publisher's shares on as they are; network coding
passes coded blocks on alike, all of which are needed; Algorithm 2 is the re-splitting of `keys.sharetree`. A
coalition of bad replicas either reads (it behaves, pools all that it sees, and rebuilds the secret if it can) or
stops (it drops all that it gets). Both are carried out on real shares and blocks: the result is True if the bytes of
the secret came out. For the simulator only: nothing here may carry a key. Not here: forged shares (`adversary`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, product
from typing import Protocol, TypeAlias

from keys import gf256, shamir
from keys.columnsearch import CHOICES_LIMIT, ColumnSearch
from keys.sharetree import SECRET_BYTES, Hop, first_split, resplit
from papers.experiments.draws import Draws

Coalition: TypeAlias = Sequence[frozenset[int]]
"""The places (1..n) of bad replicas of every virtual node of the path, publisher's end first."""
Holdings: TypeAlias = dict[int, set[int]]
"""The shares (numbered from 1) of each place of a virtual node."""


class Spread(Enum):
    """The way in which Algorithm 1 hands the shares of a virtual node to the replicas of the next."""

    PRINTED = "as printed"
    """Every share to every replica that has fewer than k: one replica ends up with k of them, enough to read."""
    FILL = "fill up to k - 1"
    """A share to the first replica that has fewer than k - 1, as the two pictures of Figure 3 show."""
    EVEN = "one column each"
    """Share i to replica i, the ideal case of the paper's text: no replica has more than its column."""

    def receivers(self, share: int, has: Mapping[int, set[int]], threshold: int) -> list[int]:
        """Returns the places getting `share` next, when the places of the next node have `has` so far."""
        if self is Spread.EVEN:
            return [(share - 1) % len(has) + 1]
        if self is Spread.PRINTED:
            return [place for place in has if len(has[place]) < threshold]
        return [place for place in has if len(has[place]) < threshold - 1][:1]


@dataclass(frozen=True, slots=True)
class BaselineReach:
    """The final shares of a coalition. `pooled`: shares seen by any of its replicas; `most`: by one replica alone."""

    pooled: frozenset[int]
    most: frozenset[int]


def forwarded(counts: Sequence[int], spread: Spread, threshold: int, silent: Coalition = ()) -> list[Holdings]:
    """Returns the shares of each place in each virtual node, if the replicas in `silent` pass nothing on.

    `counts`: replicas of each node. The publisher deals a single share to each replica of the first.
    """
    has: Holdings = {place: {place} for place in range(1, counts[0] + 1)}
    path = [has]
    for level, count in enumerate(counts[1:]):
        following: Holdings = {place: set() for place in range(1, count + 1)}
        for place, shares in has.items():
            for share in sorted(shares) if not (silent and place in silent[level]) else ():
                for receiver in spread.receivers(share, following, threshold):
                    following[receiver].add(share)
        has = following
        path.append(has)
    return path


def gathered(path: Sequence[Holdings], bad: Coalition) -> BaselineReach:
    """Returns the shares of `path` that `bad` sees.

    Bad replicas also hand all shares to a bad one of the next node, as in Figure 3.
    """
    carried: set[int] = set()
    most: set[int] = set()
    for has, places in zip(path, bad, strict=True):
        for place in places:  # whichever of them the others before it chose to hand their shares to
            most = max(most, has[place] | carried, key=len)
        carried = carried.union(*(has[place] for place in places)) if places else set()
    pooled = frozenset().union(*(has[place] for has, places in zip(path, bad, strict=True) for place in places))
    return BaselineReach(pooled, frozenset(most))


def arriving(path: Sequence[Holdings], silent: Coalition) -> frozenset[int]:
    """Returns the shares a subscriber behind the last virtual node gets when `silent` drops all its shares."""
    return frozenset().union(*(shares for place, shares in path[-1].items() if place not in silent[-1]))


class Scheme(Protocol):
    """A scheme for getting a secret down a path, with the two attacks of a coalition."""

    def reads(self, bad: Coalition) -> bool:
        """Returns True if the replicas of `bad` together rebuild the secret."""

    def delivers(self, bad: Coalition) -> bool:
        """Returns True if the subscriber rebuilds the secret though the replicas of `bad` pass nothing on."""


class Algorithm1:
    """The publisher's shares, (k, n) for its first node, passed on unsplit (A3)."""

    def __init__(self, counts: Sequence[int], spread: Spread, draws: Draws) -> None:
        self._counts, self._spread = counts, spread
        self.threshold = shamir.threshold_of(counts[0])
        self._secret = draws.randbytes(SECRET_BYTES)
        coefficients = draws.randbytes((self.threshold - 1) * SECRET_BYTES)
        self._shares = shamir.split(self._secret, self.threshold, counts[0], coefficients)
        self._undisturbed = forwarded(counts, spread, self.threshold)

    def _rebuilt(self, numbers: frozenset[int]) -> bool:
        chosen = sorted(numbers)[: self.threshold]
        found = shamir.combine({x: self._shares[x - 1] for x in chosen}) if chosen else b""
        return found == self._secret

    def reads(self, bad: Coalition) -> bool:
        return self._rebuilt(gathered(self._undisturbed, bad).pooled)

    def one_replica_reads(self, bad: Coalition) -> bool:
        """Returns True if a single bad replica reads, given the shares that bad ones of the node before hand it
        alone.
        """
        return self._rebuilt(gathered(self._undisturbed, bad).most)

    def delivers(self, bad: Coalition) -> bool:
        return self._rebuilt(arriving(forwarded(self._counts, self._spread, self.threshold, bad), bad))


class NetworkCoding:
    """n random combinations of the n pieces of the secret; a holder of all blocks solves for the pieces (A4)."""

    def __init__(self, counts: Sequence[int], draws: Draws) -> None:
        count = counts[0]
        self._counts = counts
        self._secret = draws.randbytes(SECRET_BYTES)
        self._undisturbed = forwarded(counts, Spread.EVEN, count)
        size = -(-SECRET_BYTES // count)
        padded = self._secret.ljust(size * count, b"\0")
        pieces = [padded[start : start + size] for start in range(0, len(padded), size)]
        self._blocks: list[tuple[bytes, bytes]] = []
        while len(solve(self._blocks)) < count:  # blocks that depend on each other are drawn anew
            vectors = [draws.randbytes(count) for _ in range(count)]
            self._blocks = [(vector, _combined(vector, pieces)) for vector in vectors]

    def _rebuilt(self, numbers: frozenset[int]) -> bool:
        pieces = solve([self._blocks[number - 1] for number in sorted(numbers)])
        return b"".join(pieces)[:SECRET_BYTES] == self._secret

    def reads(self, bad: Coalition) -> bool:
        return self._rebuilt(gathered(self._undisturbed, bad).pooled)

    def one_replica_reads(self, bad: Coalition) -> bool:
        """Returns True if a single bad replica reads, as in Figure 4(a).

        Bad replicas hand blocks on to one that gets the rest by the rules.
        """
        return self._rebuilt(gathered(self._undisturbed, bad).most)

    def delivers(self, bad: Coalition) -> bool:
        return self._rebuilt(arriving(forwarded(self._counts, Spread.EVEN, self._counts[0], bad), bad))


def _combined(vector: bytes, pieces: Sequence[bytes]) -> bytes:
    total = bytes(len(pieces[0]))
    for factor, piece in zip(vector, pieces, strict=True):
        total = gf256.xor(total, gf256.scale(piece, factor))
    return total


def solve(blocks: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Solves `blocks` of (coefficients, combination) for the pieces by elimination; none unless they determine all."""
    if not blocks:
        return []
    unknowns = len(blocks[0][0])
    rows = [vector + combination for vector, combination in blocks]
    for column in range(unknowns):
        pivot = next((at for at in range(column, len(rows)) if rows[at][column]), None)
        if pivot is None:
            return []
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = gf256.scale(rows[column], gf256.inv(rows[column][column]))
        for at, row in enumerate(rows):
            if at != column and row[column]:
                rows[at] = gf256.xor(row, gf256.scale(rows[column], row[column]))
    return [row[unknowns:] for row in rows[:unknowns]]


class Algorithm2:
    """Every share split anew for the next node, by the functions the replicas use (A5)."""

    def __init__(self, counts: Sequence[int], draws: Draws) -> None:
        self._hops = [Hop(region, 1, shamir.threshold_of(n), n) for region, n in enumerate(counts, 1)]
        self._secret = draws.randbytes(SECRET_BYTES)
        first = self._hops[0]
        self._levels = [first_split(self._secret, first, draws.randbytes((first.threshold - 1) * SECRET_BYTES))]
        digest = draws.randbytes(32)
        for hop in self._hops[1:]:
            seeds = [draws.randbytes(32) for _ in range(self._hops[hop.region - 2].count)]
            before = self._levels[-1]
            self._levels.append(
                [s for share in before for s in resplit(share, digest, hop, seeds[share.places[-1] - 1])]
            )

    def reads(self, bad: Coalition) -> bool:
        """Returns True if k values of a split are known for some share, and so upwards to the secret."""
        known: dict[tuple[int, ...], bytes] = {}
        for level, (hop, places) in reversed(list(enumerate(zip(self._hops, bad, strict=True)))):
            known.update((s.places, s.value) for s in self._levels[level] if s.places[-1] in places)
            parts: dict[tuple[int, ...], dict[int, bytes]] = {}
            for (*above, place), value in known.items():
                if len(above) == level:
                    parts.setdefault(tuple(above), {})[place] = value
            for above_it, values in parts.items():
                if len(values) >= hop.threshold:
                    known[above_it] = shamir.combine(dict(sorted(values.items())[: hop.threshold]))
        return known.get(()) == self._secret

    def delivers(self, bad: Coalition) -> bool:
        levels = range(len(self._hops))
        kept = [s for s in self._levels[-1] if not any(s.places[level] in bad[level] for level in levels)]
        values = {share.places[0]: share.value for share in self._levels[0]}
        search = ColumnSearch(self._hops, lambda x, value: values[x] == value, lambda s: s == self._secret)
        search.add_shares(kept)
        return search.search(CHOICES_LIMIT, {}) is not None


def coalitions(counts: Sequence[int]) -> Iterator[Coalition]:
    """Yields every choice of f = floor((n-1)/2) bad replicas in each virtual node; fewer can do no more than these."""
    return product(*([frozenset(chosen) for chosen in combinations(range(1, n + 1), (n - 1) // 2)] for n in counts))


@dataclass(frozen=True, slots=True)
class Attacked:
    """Counts of `placements`, and of placements in which the coalition `read` the secret, or `stopped` it."""

    placements: int
    read: int
    stopped: int


def attacked(scheme: Scheme, counts: Sequence[int], done: Callable[[], None] = lambda: None) -> Attacked:
    """Carries both attacks out for every coalition; `done` is called after each."""
    placements = read = stopped = 0
    for bad in coalitions(counts):
        placements += 1
        read += scheme.reads(bad)
        stopped += not scheme.delivers(bad)
        done()
    return Attacked(placements, read, stopped)
