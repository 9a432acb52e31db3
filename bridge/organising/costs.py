"""Costs of delivering along a tree, and the comparison with a direct link (D1, D4; Eqs 1 to 7 of paper D).

A publication costs each broker of its delivery tree that broker's processing and each link the link's cost (Eq 1). All
publications together cost the sum (Eq 2), which needs no list of them: a link carries the publications that concern
brokers on both of its sides, and a broker handles the publications that it wants or that concern two of the branches
around it. In the paper's heuristic a broker judges a link to another broker by the present cost of the way there, less
the traffic the brokers between want anyway.

The paper's Eq 3 has a parenthesis too many and its neighbourhood includes the broker itself; read so, Eq 5 follows
from Eqs 3 and 4, which a test shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

Neighbours: TypeAlias = Mapping[int, Collection[int]] | Sequence[Collection[int]]
"""A tree: the neighbours of each broker."""
NOISE_PART = 0.005  # of all publications: a smaller estimate may as well be zero


class KnownCosts(Protocol):
    """The known figures of regions, or brokers; None for each unknown figure. `concerned`: the number of publications
    concerning one or more of these regions.
    """

    def concerned(self, regions: frozenset[int], /) -> float | None: ...
    def processing(self, region: int, /) -> float | None: ...
    def link_cost(self, one: int, other: int, /) -> float | None: ...


def nearer_ends(tree: Neighbours, start: int) -> dict[int, int]:
    """Returns the last broker on the way from `start` to each broker, nearest first; `start` itself for `start`."""
    above = {start: start}
    order = [start]
    for here in order:
        for there in tree[here]:
            if there not in above:
                above[there] = here
                order.append(there)
    return above


def delivery_tree(tree: Neighbours, interested: Collection[int]) -> list[tuple[int, int]]:
    """Returns the links a publication crosses if it concerns these brokers: the rest of the tree after cutting off
    each unconcerned leaf, again and again. A link is (further, nearer) as seen from the first of the brokers.
    """
    above = nearer_ends(tree, next(iter(interested)))
    order = list(above)
    needed = set(interested)
    links = []
    for here in reversed(order[1:]):
        if here in needed:
            needed.add(above[here])
            links.append((here, above[here]))
    return links


def delivery_cost(
    tree: Neighbours,
    interested: Collection[int],
    link_cost: Callable[[int, int], float],
    processing: Sequence[float] | Mapping[int, float],
) -> float:
    """Returns Eq 1: the processing of every broker of the delivery tree and the cost of its links, for a
    publication.
    """
    links = delivery_tree(tree, interested)
    start = next(iter(interested))
    return processing[start] + sum(processing[here] + link_cost(here, there) for here, there in links)


def tree_cost(tree: Mapping[int, Collection[int]], known: KnownCosts) -> float | None:
    """Returns Eq 2: the cost of all publications along `tree`; None if a needed figure is unknown.

    The cost of a region to which no publication comes is not needed.
    """
    above = nearer_ends(tree, next(iter(tree)))
    order = list(above)
    everybody = frozenset(order)
    count = known.concerned(everybody)
    if count is None:
        return None
    below: dict[int, frozenset[int]] = {}
    handled = dict.fromkeys(order, count)
    parts: list[tuple[float, float | None]] = []  # pairs of count and price
    for here in reversed(order[1:]):
        below[here] = frozenset((here,)).union(*(below[there] for there in tree[here] if there != above[here]))
        inside, outside = known.concerned(below[here]), known.concerned(everybody - below[here])
        if inside is None or outside is None:
            return None
        handled[above[here]] -= count - outside  # the rest concerns only regions behind this link
        handled[here] -= count - inside
        parts.append((inside + outside - count, known.link_cost(here, above[here])))
    parts += [(handled[here], known.processing(here)) for here in order]
    if any(each is None and often > NOISE_PART * count for often, each in parts):
        return None
    return sum(max(often, 0.0) * each for often, each in parts if each is not None)


def mean_common(common: Mapping[int, float], own: float) -> float:
    """Returns Eq 6, φ: the publications a broker and two others have in common on average. `common`: with each broker
    of the neighbourhood, the broker itself included, with which it has `own` in common.
    """
    if len(common) < 2:
        return 0.0
    return (sum(common.values()) - own) / (len(common) - 1)


def indirect_cost(
    path: Sequence[int],
    common: Mapping[int, float],
    phi: float,
    link_costs: Sequence[float],
    processing: Sequence[float],
) -> float | None:
    """Returns Eq 7: the cost to the first broker of `path` of the way to the last, for the publications that both want.

    `link_costs`: of each link of the path; `processing`: of each broker. `common`: with each of them but the first.
    None if a needed value is unknown.
    """
    cost = link_costs[0]
    for at in range(2, len(path)):
        with_end, with_before = common.get(path[at]), common.get(path[at - 1])
        if with_end is None or with_before is None:
            return None
        of_three = min(phi, with_end, with_before)
        alone = (with_end - of_three) / with_end if with_end else 1.0
        cost = alone * (cost + processing[at - 1]) + link_costs[at - 1]
    return cost


def is_worth_it(direct: float, indirect: float | None, common: float | None) -> bool:
    """Returns True if a broker wants a link by the paper's rule: the link costs less than the present way, there is
    something in common, and all needed values are known.
    """
    return bool(common) and indirect is not None and direct < indirect
