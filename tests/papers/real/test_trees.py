"""Self-organising trees on recorded data: costs and swaps beside the live functions."""

from __future__ import annotations

import pytest

from bridge.organising.costs import delivery_cost, tree_cost
from bridge.organising.swaps import good_swaps, swapped_tree
from papers.experiments.draws import Draws
from papers.real import trees
from papers.real.trees import Edge, Given, World, best_swap, by_swaps, least_tree, random_tree
from tests.papers.real.toy import grid, recorded


def nothing(done: float) -> None:
    assert 0 <= done <= 1


def grid_world(side: int = 3) -> World:
    network = grid("a", side)
    return World.on_backbone(network, network.demands)


class Known:
    """What the overlay's swaps ask for, of a world."""

    def __init__(self, of: World) -> None:
        self._of = of

    def concerned(self, regions: frozenset[int]) -> float:
        return sum(rate for pair, rate in self._of.demands.items() if regions & set(pair))

    def processing(self, region: int) -> float:
        return self._of.processing[region]

    def link_cost(self, one: int, other: int) -> float:
        return self._of.links[one][other]


@pytest.mark.parametrize("seed", range(5))
def test_the_cost_is_eq_2_and_the_best_swap_that_of_the_overlay(seed: int) -> None:
    here = grid_world()
    tree = random_tree(9, Draws("trees", seed))
    live = dict(enumerate(tree))
    assert here.cost(tree) == pytest.approx(tree_cost(live, Known(here)))
    by_hand = sum(
        rate * delivery_cost(tree, pair, lambda a, b: here.links[a][b], here.processing)
        for pair, rate in here.demands.items()
    )
    assert here.cost(tree) == pytest.approx(by_hand)
    links: list[Edge] = [(a, b) for a, near in enumerate(here.network.links) for b, _ in near if a < b]
    swaps, found = good_swaps(live, links, Known(here), trees.MIN_GAIN), best_swap(here, tree, links)
    if not swaps:
        assert found is None
        return
    assert found is not None
    assert found[0] == pytest.approx(swaps[0].after)
    assert here.cost([*swapped_tree(live, found[1], found[2]).values()]) == pytest.approx(found[0])


def test_swaps_only_lower_the_cost() -> None:
    here = grid_world(4)
    first = random_tree(16, Draws("lower"))
    last = by_swaps(here, first)
    assert here.cost(last) < here.cost(first)
    assert sum(map(len, last)) == 30


def test_the_least_tree_is_least() -> None:
    prices = {(0, 1): 1.0, (0, 2): 5.0, (1, 2): 2.0, (0, 3): 9.0, (1, 3): 8.0, (2, 3): 7.0}
    tree = least_tree(4, lambda a, b: prices[min(a, b), max(a, b)])
    assert tree == [{1}, {0, 2}, {1, 3}, {2}]


def test_the_heuristic_is_played_with_the_demands() -> None:
    here = grid_world()
    first = random_tree(9, Draws("played"))
    overlay = Given(here, first, 1, "toy")
    overlay.run(3_000)
    assert here.cost(overlay.tree) < here.cost(first)
    assert sum(map(len, first)) == sum(map(len, overlay.tree)) == 16


@pytest.mark.parametrize("name", ["trees", "scale"])
def test_a_figure_has_its_baselines_and_intervals(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for bound, value in (("BROKERS", (12, 20)), ("TICKS", 1_000), ("SCALE_TICKS", 1_000), ("EVERY", 1)):
        monkeypatch.setattr(trees, bound, value)
    figure = getattr(trees, f"figure_{name}")(1, nothing, recorded=recorded(), runs=1)
    assert len(figure.series) == (5 if name == "trees" else 3)
    assert all(series.intervals for series in figure.series)
    assert all(len(row) == len(figure.columns) for row in figure.rows)
    if name == "trees":
        swaps = next(series for series in figure.series if "Eq 2" in series.name)
        assert max(swaps.ys) < 100
