"""Which link should come, and which of its cycle should go for it: Eqs 3 to 10 of paper D on what is known now.

`ring_vectors` and `consensus.link_to_remove` decide in the simulator and in the product alike. `swap_of` judges what
somebody else chose. `best_swap` tries every
potential link: one end has to want it (Eq 7), the cycle has to agree which link goes (Eqs 8 to 10), and all of the
cycle together has to spare a part of what it pays. Where a figure is not known, nothing is proposed. Not here: what a
tree must never be (`admissible` is the caller's), rest between changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from bridge.organising.consensus import cost_vector, link_to_remove
from bridge.organising.costs import Neighbours, indirect_cost, is_worth_it, mean_common


class KnownCosts(Protocol):
    """What is known of regions, or brokers: None of what is not. `common`: with each other, itself included."""

    def common(self, region: int, /) -> Mapping[int, float]: ...
    def processing(self, region: int, /) -> float | None: ...
    def link(self, one: int, other: int, /) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Swap:
    """`ring`: of the cycle, from one end of the new link to the other. `before`, `after`: what all on it pay."""

    added: tuple[int, int]
    removed: tuple[int, int]
    ring: tuple[int, ...]
    before: float
    after: float

    @property
    def gain(self) -> float:
        """The part that is spared."""
        return 1 - self.after / self.before if self.before else 0.0


def ring_vectors(
    ring: Sequence[int],
    common: Sequence[Mapping[int, float]],
    phis: Sequence[float],
    link_costs: Sequence[float],
    processing: Sequence[float],
) -> list[list[float]] | None:
    """Eq 8 of all on the cycle; `common`, `phis`: of each. None if somebody does not know enough."""
    vectors = []
    for at, (known, phi) in enumerate(zip(common, phis, strict=True)):
        vector = cost_vector(ring, at, known, phi, link_costs, processing)
        if vector is None:
            return None
        vectors.append(vector)
    return vectors


def best_swap(
    tree: Neighbours,
    links: Iterable[tuple[int, int]],
    known: KnownCosts,
    hops: int,
    min_gain: float,
    admissible: Callable[[Swap], bool] = lambda swap: True,
) -> Swap | None:
    """Of the swaps for these potential links that one may make, the one that spares most; of equals the first by its
    regions. `hops`: how far a neighbourhood reaches."""
    found = [swap for link in links if (swap := swap_for(tree, link, known, hops, min_gain)) is not None]
    found.sort(key=lambda swap: (swap.after - swap.before, swap.added, swap.removed))
    return next((swap for swap in found if admissible(swap)), None)


def swap_for(tree: Neighbours, link: tuple[int, int], known: KnownCosts, hops: int, min_gain: float) -> Swap | None:
    """What the cycle of one new link would do; None if the link stands, nobody wants it, or too little is known."""
    cycle = _cycle(tree, link, known, hops)
    if cycle is None or not cycle.is_wanted(min_gain):
        return None
    vectors = cycle.vectors()
    if vectors is None:
        return None
    at = link_to_remove(vectors, cycle.ring)
    if at == len(cycle.ring) - 1:
        return None
    swap = cycle.swap(vectors, at)
    return swap if swap.gain > 0 and swap.gain >= min_gain else None


def swap_of(
    tree: Neighbours, added: tuple[int, int], removed: tuple[int, int], known: KnownCosts, hops: int
) -> Swap | None:
    """What somebody else chose, by what is known here; None if too little is, or `removed` is not on the cycle."""
    cycle = _cycle(tree, added, known, hops)
    vectors = None if cycle is None else cycle.vectors()
    if cycle is None or vectors is None:
        return None
    places = [at for at, edge in enumerate(pairwise(cycle.ring)) if set(edge) == set(removed)]
    return cycle.swap(vectors, places[0]) if places else None


@dataclass(frozen=True, slots=True)
class _Cycle:
    """What is known of the cycle that a link closes: of each on it, and of each link but the new one (`direct`)."""

    ring: list[int]
    common: list[Mapping[int, float]]
    phis: list[float]
    links: list[float]
    direct: float
    processing: list[float]

    def is_wanted(self, min_gain: float) -> bool:
        """Whether one of the ends wants the link."""
        ends = (
            (self.common[0], self.phis[0], self.ring, self.links, self.processing),
            (self.common[-1], self.phis[-1], self.ring[::-1], self.links[::-1], self.processing[::-1]),
        )
        return any(
            is_worth_it(self.direct, indirect_cost(path, shared, phi, there, work), shared.get(path[-1]), min_gain)
            for shared, phi, path, there, work in ends
        )

    def vectors(self) -> list[list[float]] | None:
        return ring_vectors(self.ring, self.common, self.phis, [*self.links, self.direct], self.processing)

    def swap(self, vectors: Sequence[Sequence[float]], at: int) -> Swap:
        """With link number `at` of the ring removed."""
        ring = self.ring
        before, after = (sum(vector[place] for vector in vectors) for place in (-1, at))
        return Swap((ring[0], ring[-1]), (ring[at], ring[at + 1]), tuple(ring), before, after)


def _cycle(tree: Neighbours, link: tuple[int, int], known: KnownCosts, hops: int) -> _Cycle | None:
    """None if the link stands, or too little is known."""
    ring = way(tree, *sorted(link))
    direct = known.link(*sorted(link))
    costs = [known.link(a, b) for a, b in pairwise(ring)]
    taken = [known.processing(region) for region in ring]
    if len(ring) < 3 or direct is None:
        return None
    links, processing = [c for c in costs if c is not None], [p for p in taken if p is not None]
    if len(links) < len(costs) or len(processing) < len(taken):
        return None
    common = [known.common(region) for region in ring]
    phis = [neighbourhood_mean(tree, region, shared, hops) for region, shared in zip(ring, common, strict=True)]
    return _Cycle(ring, common, phis, links, direct, processing)


def way(tree: Neighbours, start: int, end: int) -> list[int]:
    """From one to the other along the tree, both included; empty if there is none."""
    above = {start: start}
    queue = [start]
    for here in queue:
        for there in tree[here]:
            if there not in above:
                above[there] = here
                queue.append(there)
    if end not in above:
        return []
    path = [end]
    while path[-1] != start:
        path.append(above[path[-1]])
    return path[::-1]


def neighbourhood_mean(tree: Neighbours, region: int, common: Mapping[int, float], hops: int) -> float:
    """Eq 6 over those within so many hops of whom something is known."""
    near, edge = {region}, [region]
    for _ in range(hops):
        edge = [there for here in edge for there in tree[here] if there not in near]
        near.update(edge)
    return mean_common({one: common[one] for one in near if one in common}, common.get(region, 0.0))
