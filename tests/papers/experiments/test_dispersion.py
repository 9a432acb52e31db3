"""How far friends are apart: trees and sums by hand, and the figure against the paper."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.experiments.dispersion import (
    DispersionTree,
    apart,
    by_hops,
    delivered,
    hops_between,
    on_the_way,
    summary,
    wrapped_on_the_way,
    zipf_weights,
)
from papers.experiments.draws import Draws
from papers.experiments.secret_forwarding import FIGURES
from tests.keys.wrapped import Way
from tests.papers.experiments.helpers import rows, silent


def test_figure_9_at_full_size_has_the_orders_of_magnitude_of_the_paper():
    figure = FIGURES["9"](1, silent)

    def mean(fanout: float, alpha: float, convention: str) -> tuple[float, float, float]:
        row = next(row for row in rows(figure, alpha=alpha, convention=convention) if row["fan-out"] == fanout)
        return float(row["mean hops"]), float(row["median shares"]), float(row["mean shares"])

    near = "near the root, r^(h+1) delivered"
    hops, median, shares = mean(2, 0.5, near)
    assert hops == pytest.approx(10, abs=0.5)
    assert 80_000 / 3 < median < 80_000 * 3
    assert shares == pytest.approx(4.96e6, rel=0.01)
    assert mean(2, 2, "near the root, two brokers, r^(h+1)")[2] == pytest.approx(860, rel=0.3)
    assert mean(5, 0.5, near)[2] < 0.01 * shares  # the paper's -99 %
    assert mean(5, 1, "near the root, two brokers, r^(h+1)")[2] == pytest.approx(939.3, abs=0.05)


def test_hops_and_weights_of_a_small_tree_by_hand():
    tree = DispersionTree.complete(4, 2)  # 0 over 1 and 2, 1 over 3
    assert tree.distances() == [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 3], [2, 1, 3, 0]]
    assert tree.path(3, 2) == [3, 1, 0, 2]
    assert tree.path(1, 1) == [1]
    assert tree.depth_first() == [0, 1, 3, 2]
    assert zipf_weights([2, 0, 1], 1.0) == pytest.approx([3 / 11, 2 / 11, 6 / 11])
    histogram = hops_between(tree.distances(), [0.25] * 4)
    assert histogram == pytest.approx({0: 4 / 16, 1: 6 / 16, 2: 4 / 16, 3: 2 / 16})
    assert summary(apart(histogram), delivered).mean == pytest.approx((6 * 9 + 4 * 27 + 2 * 81) / 12)
    assert summary(histogram, delivered).median == 9


def test_an_irregular_tree_is_a_tree_with_the_fanout_on_average():
    tree = DispersionTree.irregular(400, 3, Draws("irregular"))
    children = [tree.parents.count(v) for v in range(tree.parents[-1])]  # the last one may be cut short
    assert all(parent < v for v, parent in enumerate(tree.parents))
    assert all(1 <= number <= 5 for number in children)
    assert sum(children) / len(children) == pytest.approx(3, abs=0.5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 99))
def test_distances_are_the_lengths_of_paths_whatever_the_tree(brokers: int, fanout: int, seed: int):
    for tree in (
        DispersionTree.complete(brokers, fanout),
        DispersionTree.irregular(brokers, fanout, Draws("tree", seed)),
    ):
        assert len(tree) == brokers
        assert sorted(tree.depth_first()) == list(range(brokers))
        distances = tree.distances()
        for a in range(0, brokers, 7):
            for b in range(brokers):
                path = tree.path(a, b)
                assert (path[0], path[-1], len(path) - 1) == (a, b, distances[a][b])
                assert all(tree.parents[max(u, v)] == min(u, v) for u, v in pairwise(path))


def test_shares_by_hand():
    assert [by_hops(hops) for hops in (0, 1, 4)] == [1, 3, 81]
    assert [delivered(hops) for hops in (0, 1, 4)] == [3, 9, 243]
    assert on_the_way(1) == 3 + 9 + 9


@pytest.mark.parametrize(("hops", "replicas"), [(4, 3), (6, 3), (4, 5)])
def test_wrapped_shares_are_as_many_as_replicas_really_make(hops: int, replicas: int) -> None:
    """Counted by who gets which (docs/protocol-options.md §3.5, rule 5), of what the live functions made."""
    way = Way((replicas,) * (hops + 1))
    carried = len(way.level1) + len(way.values[1])
    for at in range(2, hops + 1):
        for (sender, _), _ in way.values[at].items():
            own = [wrap for wrap in way.wraps if wrap.name.owner == way.place(at - 1, sender)]
            farther = [wrap for wrap in way.wraps if wrap.name.owner.region < way.hops[at - 1].region]
            carried += 1 + len(own) + len(farther)
    carried += len(way.told) + replicas * len(way.wraps)
    assert wrapped_on_the_way(hops, replicas) == carried


def test_up_to_four_nodes_nothing_is_wrapped() -> None:
    assert [wrapped_on_the_way(hops) for hops in range(4)] == [on_the_way(hops) for hops in range(4)]
    assert wrapped_on_the_way(4) < on_the_way(4)


def test_the_median_is_where_half_of_all_pairs_are():
    found = summary({0: 2.0, 1: 1.0, 3: 1.0}, delivered)
    assert (found.hops, found.median, found.mean) == (1.0, 3.0, (2 * 3 + 9 + 81) / 4)
    assert summary({0: 1.0, 1: 1.1}, delivered).median == 9.0
