"""Swaps of a link of a tree for another, judged by the cost of all publications: Eq 2 of paper D.

The paper's brokers know their neighbourhood only, and judge a swap by the cost on its cycle of the publications that
pairs of brokers have in common (`consensus`). Such a judgement raises Eq 2 now and then, since a publication that
several brokers want is counted for each pair. Here the counts of all regions are known (`KnownCosts.concerned`), so
that each swap has its true price; without a figure a swap has no price. Not here: forbidden trees, rest between
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from bridge.organising.costs import KnownCosts, Neighbours, nearer_ends, tree_cost


@dataclass(frozen=True, slots=True)
class Swap:
    """A swap. `ring`: its cycle, from an end of the new link to the other. `before`, `after`: Eq 2 of either tree."""

    added: tuple[int, int]
    removed: tuple[int, int]
    ring: tuple[int, ...]
    before: float
    after: float

    @property
    def gain(self) -> float:
        """The part of Eq 2 that is spared."""
        return 1 - self.after / self.before if self.before else 0.0


def good_swaps(
    tree: Mapping[int, Collection[int]], links: Iterable[tuple[int, int]], known: KnownCosts, min_gain: float
) -> list[Swap]:
    """Returns the swaps for these potential links that spare at least `min_gain` (a part of Eq 2) and more than
    nothing, the largest gain first, equals by their regions.
    """
    before = tree_cost(tree, known)
    if not before:
        return []
    found = []
    for added in {(min(link), max(link)) for link in links}:
        ring = way(tree, *added)
        for removed in pairwise(ring) if len(ring) >= 3 else ():
            after = tree_cost(swapped_tree(tree, added, removed), known)
            if after is not None and after < before and 1 - after / before >= min_gain:
                found.append(Swap(added, removed, tuple(ring), before, after))
    return sorted(found, key=lambda swap: (swap.after, swap.added, swap.removed))


def swap_of(
    tree: Mapping[int, Collection[int]], added: tuple[int, int], removed: tuple[int, int], known: KnownCosts
) -> Swap | None:
    """Returns a swap another party chose, with its price here; None if too little is known, or `removed` is not on the
    cycle.
    """
    ring = way(tree, *sorted(added))
    if set(removed) not in map(set, pairwise(ring)) or set(removed) == set(added):
        return None
    before, after = tree_cost(tree, known), tree_cost(swapped_tree(tree, added, removed), known)
    if before is None or after is None:
        return None
    return Swap((ring[0], ring[-1]), removed, tuple(ring), before, after)


def swapped_tree(
    tree: Mapping[int, Collection[int]], added: tuple[int, int], removed: tuple[int, int]
) -> dict[int, set[int]]:
    """Returns the tree with a link in place of another."""
    made = {region: set(beside) for region, beside in tree.items()}
    for one, other in (removed, removed[::-1]):
        made[one].discard(other)
    for one, other in (added, added[::-1]):
        made[one].add(other)
    return made


def way(tree: Neighbours, start: int, end: int) -> list[int]:
    """Returns the regions from `start` to `end` along the tree, both included; empty if there is no way."""
    above = nearer_ends(tree, start)
    if end not in above:
        return []
    path = [end]
    while path[-1] != start:
        path.append(above[path[-1]])
    return path[::-1]
