"""Secret forwarding on recorded data: the counts by hand, and what the figures must say."""

from __future__ import annotations

import pytest

from papers.experiments.dispersion import on_the_way
from papers.experiments.draws import Draws
from papers.real import sharing
from papers.real.recorded import hops_from, shortest_tree
from tests.papers.real.toy import grid, recorded


def nothing(done: float) -> None:
    assert 0 <= done <= 1


def test_counts_by_hand() -> None:
    assert on_the_way(0) == 3 + 3
    assert on_the_way(2, 5) == 5 + 25 + 125 + 125
    assert sharing.coded(2) == 1 + 2 * 3 + 1
    row = [{1}, {0, 2}, {1}]
    costs = {sharing.by_repository(row, (0, 2), 1, Draws("one", seed)) for seed in range(20)}
    assert costs == {4.0}, "in a row each party is on the way: two links, and one to either end"


def test_how_much_a_key_for_two_messages_spares() -> None:
    assert sharing.saved([("a", "b")] * 4, 2) == 50.0
    assert sharing.saved([("a", "b"), ("b", "a")], 10) == 0.0
    assert list(sharing.met_pairs([("b", "a", "c")])) == [("a", "b"), ("a", "c"), ("b", "c")]


def test_the_middle_of_a_grid_is_not_at_its_edge() -> None:
    network = grid("a", 5)
    ends = [max(hops_from(shortest_tree(network.links, node), node)) for node in (sharing.central(network), 0)]
    assert ends[0] < ends[1]


@pytest.mark.parametrize("name", ["hops", "replicas", "scale-sharing"])
def test_a_repository_is_cheaper_on_long_ways(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sharing, "BROKERS", (20, 60))
    make = {"hops": sharing.figure_hops, "replicas": sharing.figure_replicas, "scale-sharing": sharing.figure_scale}
    figure = make[name](1, nothing, recorded=recorded(), runs=1)
    assert figure == make[name](1, nothing, recorded=recorded(), runs=1), "it follows from the seed"
    where = {"hops": (2, 4), "replicas": (4, 6), "scale-sharing": (3, 4)}[name]
    ours, theirs = (float(figure.rows[-1][at]) for at in where)
    assert theirs < ours
    assert any(series.intervals for series in figure.series)
    assert all(len(row) == len(figure.columns) for row in figure.rows)


def test_refreshing_less_spares_more_up_to_how_often_two_meet() -> None:
    figure = sharing.figure_refresh(1, nothing, recorded=recorded())
    for series in figure.series[:3]:
        assert list(series.ys) == sorted(series.ys)
    women = next(series for series in figure.series if "women" in series.name)
    assert women.ys[-1] == pytest.approx(100 * (1 - 4 / 5)), "four pairs in five meetings of two"
