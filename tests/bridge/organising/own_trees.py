"""A model of Eqs 1 and 2 of paper D that shares nothing with the code: every tree by brute force, leaf by leaf.

A world has brokers on a plane, links as long as they are apart, and kinds of publications, each with the brokers that
it concerns and how many of it there were.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

Edges = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class OwnWorld:
    """`kinds`: the brokers that one concerns, and how many publications of it there were."""

    places: tuple[complex, ...]
    work: tuple[float, ...]
    kinds: tuple[tuple[frozenset[int], int], ...]

    def link_cost(self, one: int, other: int) -> float:
        return abs(self.places[one] - self.places[other])

    def processing(self, broker: int) -> float:
        return self.work[broker]

    def concerned(self, brokers: frozenset[int]) -> float:
        return float(sum(count for whom, count in self.kinds if whom & brokers))

    def eq2(self, edges: Edges) -> float:
        """Each kind along what is left of the tree when leaves that it does not concern are cut, one after another."""
        total = 0.0
        for whom, count in self.kinds:
            left = set(edges)
            while True:
                ends = [end for edge in left for end in edge]
                idle = {edge for edge in left for end in edge if ends.count(end) == 1 and end not in whom}
                if not idle:
                    break
                left -= idle
            brokers = {end for edge in left for end in edge} or set(whom)
            total += count * (sum(self.work[one] for one in brokers) + sum(self.link_cost(*edge) for edge in left))
        return total


def drawn_world(draw: random.Random, brokers: int, kinds: int) -> OwnWorld:
    """Up to four brokers want each kind."""
    return OwnWorld(
        tuple(complex(draw.uniform(0, 10), draw.uniform(0, 10)) for _ in range(brokers)),
        tuple(draw.uniform(0, 3) for _ in range(brokers)),
        tuple(
            (frozenset(draw.sample(range(brokers), draw.randint(2, min(4, brokers)))), draw.randint(1, 50))
            for _ in range(kinds)
        ),
    )


def every_tree(brokers: int) -> Iterator[Edges]:
    """All sets of edges that are a tree."""
    for edges in combinations(combinations(range(brokers), 2), brokers - 1):
        if is_tree(brokers, frozenset(edges)):
            yield frozenset(edges)


def is_tree(brokers: int, edges: Edges) -> bool:
    """Whether these edges, one fewer than brokers, join all of them."""
    group = list(range(brokers))
    for one, other in edges:
        if group[one] == group[other]:
            return False
        group = [group[one] if each == group[other] else each for each in group]
    return len(edges) == brokers - 1


def swaps_of(brokers: int, edges: Edges) -> Iterator[tuple[tuple[int, int], tuple[int, int], Edges]]:
    """Every pair of an edge that comes and one that goes, and the tree that they leave."""
    for added in combinations(range(brokers), 2):
        for removed in edges:
            after = (edges - {removed}) | {added}
            if added not in edges and is_tree(brokers, after):
                yield added, removed, after


def beside(brokers: int, edges: Edges) -> dict[int, set[int]]:
    """The neighbours of each broker, as the overlay's functions take a tree."""
    found: dict[int, set[int]] = {broker: set() for broker in range(brokers)}
    for one, other in edges:
        found[one].add(other)
        found[other].add(one)
    return found
