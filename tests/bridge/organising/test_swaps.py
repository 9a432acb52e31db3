"""The product's choice of a swap: what the simulator's functions say, and nothing where too little is known."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from bridge.organising.costs import delivery_cost
from bridge.organising.swaps import best_swap, neighbourhood_mean, ring_vectors, swap_for, way

ROW: dict[int, tuple[int, ...]] = {1: (2,), 2: (1, 3), 3: (2, 4), 4: (3,)}


class Known:
    """Costs that a test says; the two ends of `ROW` want most of what the other wants, all else less."""

    def __init__(
        self, links: Mapping[tuple[int, int], float], shared: float = 10.0, lacking: tuple[int, ...] = ()
    ) -> None:
        self.links, self.shared, self.lacking = links, shared, lacking

    def common(self, region: int) -> dict[int, float]:
        alike = {region, 5 - region} if region in (1, 4) else {region}
        return {} if region in self.lacking else {o: self.shared * (1.0 if o in alike else 0.4) for o in ROW}

    def processing(self, region: int) -> float | None:
        return None if region in self.lacking else 1.0

    def link(self, one: int, other: int) -> float | None:
        return self.links.get((min(one, other), max(one, other)))


DEAR = {(1, 2): 2.0, (2, 3): 50.0, (3, 4): 2.0, (1, 4): 2.0, (1, 3): 2.0}


def test_the_dear_link_of_the_cycle_goes() -> None:
    swap = best_swap(ROW, [(4, 1)], Known(DEAR), 4, 0.1)
    assert swap is not None
    assert (swap.added, swap.removed, swap.ring) == ((1, 4), (2, 3), (1, 2, 3, 4))
    assert swap.after < swap.before
    assert swap.gain > 0.5

    def link(a: int, b: int) -> float:
        return DEAR[min(a, b), max(a, b)]

    after = {1: (2, 4), 2: (1,), 3: (4,), 4: (1, 3)}
    taken = dict.fromkeys(ROW, 1.0)
    assert delivery_cost(after, list(ROW), link, taken) < delivery_cost(ROW, list(ROW), link, taken)


def test_of_two_swaps_that_which_spares_more_and_may_be_made() -> None:
    found = best_swap(ROW, [(1, 4), (1, 3)], Known(DEAR), 4, 0.1)
    assert found is not None
    other = best_swap(ROW, [(1, 4), (1, 3)], Known(DEAR), 4, 0.1, lambda swap: swap != found)
    assert other is not None
    assert other.before - other.after <= found.before - found.after
    assert best_swap(ROW, [(1, 4), (1, 3)], Known(DEAR), 4, 0.1, lambda swap: False) is None


def test_nothing_is_proposed_where_something_is_not_known() -> None:
    for lacking in ROW:
        assert best_swap(ROW, [(1, 4)], Known(DEAR, lacking=(lacking,)), 4, 0.1) is None
    for gone in ((1, 2), (2, 3), (3, 4), (1, 4)):
        links = {link: cost for link, cost in DEAR.items() if link != gone}
        assert best_swap(ROW, [(1, 4)], Known(links), 4, 0.1) is None
    assert best_swap(ROW, [(1, 4)], Known(DEAR, shared=0.0), 4, 0.1) is None, "nothing in common"


def test_a_link_that_stands_or_leads_nowhere_is_none() -> None:
    assert swap_for(ROW, (1, 2), Known(DEAR), 4, 0.0) is None
    apart = {**ROW, 3: (4,), 2: (1,)}
    assert swap_for(apart, (1, 4), Known(DEAR), 4, 0.0) is None


def test_what_spares_less_than_the_owner_wants_is_left() -> None:
    nearly = {**DEAR, (2, 3): 2.3}
    assert best_swap(ROW, [(1, 4)], Known(nearly), 4, 0.0) is not None
    assert best_swap(ROW, [(1, 4)], Known(nearly), 4, 0.5) is None


@given(st.lists(st.floats(0.1, 100), min_size=5, max_size=5), st.floats(0, 0.5))
def test_a_swap_spares_what_it_says_and_leaves_a_tree(costs: list[float], min_gain: float) -> None:
    links = dict(zip(DEAR, costs, strict=True))
    swap = best_swap(ROW, [(1, 4), (1, 3)], Known(links), 4, min_gain)
    if swap is None:
        return
    assert swap.gain >= min_gain
    left = {frozenset((a, b)) for a, beside in ROW.items() for b in beside} - {frozenset(swap.removed)}
    left.add(frozenset(swap.added))
    after = {region: tuple(o for edge in left for o in edge - {region} if region in edge) for region in ROW}
    assert len(left) == 3
    assert all(way(after, a, b) for a, b in product(ROW, ROW))
    path = list(swap.ring)
    common = [Known(links).common(region) for region in path]
    phis = [neighbourhood_mean(ROW, region, shared, 4) for region, shared in zip(path, common, strict=True)]
    known = [links[min(a, b), max(a, b)] for a, b in zip(path, [*path[1:], path[0]], strict=True)]
    vectors = ring_vectors(path, common, phis, known, [1.0] * len(path))
    assert vectors is not None
    assert sum(vector[-1] for vector in vectors) == swap.before


def test_ways_and_neighbourhoods() -> None:
    assert way(ROW, 1, 4) == [1, 2, 3, 4]
    assert way(ROW, 3, 3) == [3]
    assert neighbourhood_mean(ROW, 1, {1: 9.0, 2: 3.0, 3: 6.0, 4: 100.0}, 2) == 4.5
    assert neighbourhood_mean(ROW, 1, {2: 3.0}, 2) == 0.0
