"""Trees that brokers change: they stay trees, cost is counted whole, and heuristics do what they are called after."""

from __future__ import annotations

from itertools import combinations

import pytest

from papers.experiments.draws import Draws
from papers.overlays.organised import Heuristic, Organised, TreeCosts

BROKERS = 20


def costs(seed: int = 1, brokers: int = BROKERS, p_max: float = 10.0) -> TreeCosts:
    draws = Draws("costs", seed)
    links = [[0.0] * brokers for _ in range(brokers)]
    for a, b in combinations(range(brokers), 2):
        links[a][b] = links[b][a] = draws.uniform(0, 10)
    return TreeCosts(links, [draws.uniform(0, p_max) for _ in range(brokers)])


def played(heuristic: Heuristic, ticks: int = 2_000, seed: int = 1, **how: float) -> tuple[Organised, float]:
    overlay = Organised(costs(seed, **how), heuristic, 4, seed, "test")  # type: ignore[arg-type]
    told = overlay.run(ticks)
    return overlay, sum(one.delivering for one in told[1:])


@pytest.mark.parametrize("heuristic", list(Heuristic))
def test_whatever_changes_it_stays_a_tree(heuristic: Heuristic) -> None:
    overlay, _ = played(heuristic)
    assert sum(map(len, overlay.tree)) == 2 * (BROKERS - 1)
    reached, order = {0}, [0]
    for here in order:
        assert all(here in overlay.tree[there] for there in overlay.tree[here])
        order += [there for there in overlay.tree[here] if there not in reached]
        reached |= overlay.tree[here]
    assert len(reached) == BROKERS


def test_the_same_world_for_all_and_a_static_tree_changes_nothing_and_tells_nothing() -> None:
    static = Organised(costs(), Heuristic.STATIC, 4, 1, "test")
    other = Organised(costs(), Heuristic.CI, 4, 1, "test")
    assert static.tree == other.tree
    (told,) = static.run(1_000)
    assert (told.telling, told.asking, told.swaps) == (0, 0, 0)
    assert static.tree == Organised(costs(), Heuristic.CI, 4, 1, "test").tree
    assert played(Heuristic.CI)[1] == played(Heuristic.CI)[1]


def test_heuristics_save_something() -> None:
    _, static = played(Heuristic.STATIC, 4_000)
    for heuristic in (Heuristic.CI, Heuristic.LMIT):
        assert played(heuristic, 4_000)[1] < static


def test_the_cheapest_links_win_where_links_are_all_that_costs() -> None:
    overlay, _ = played(Heuristic.LMST, 4_000, p_max=0.0)
    of_tree = sum(overlay.costs.links[a][b] for a in range(BROKERS) for b in overlay.tree[a] if a < b)
    drawn = Organised(costs(p_max=0.0), Heuristic.STATIC, 4, 1, "test")
    before = sum(drawn.costs.links[a][b] for a in range(BROKERS) for b in drawn.tree[a] if a < b)
    assert of_tree < before / 2
