"""All trees of seven brokers beside what the heuristic finds."""

from __future__ import annotations

import pytest

from papers.overlays.optimum import all_trees, figure_optimum


def test_trees_are_counted_out() -> None:
    trees = [frozenset(frozenset((a, b)) for a in range(5) for b in tree[a]) for tree in all_trees(5)]
    assert len(trees) == len(set(trees)) == 125
    assert all(len(tree) == 4 for tree in trees)


@pytest.mark.parametrize("runs", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_ci_comes_near_the_best_of_all_trees(runs: int) -> None:
    figure = figure_optimum(1, lambda done: None, runs=runs)
    for _, first, middle, ci, judged, best, above, judged_above, better in figure.rows:
        assert float(best) <= float(judged) < min(float(first), float(middle))
        assert float(judged_above) < 10
        assert float(best) <= float(ci) < min(float(first), float(middle))
        assert float(above) == pytest.approx(100 * (float(ci) / float(best) - 1), rel=0.2)
        assert float(above) < 10
        assert float(better) < 1
    assert figure.rows[-1][0] == "mean"
