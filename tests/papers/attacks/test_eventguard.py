"""The EventGuard experiments on small networks: what must hold for the figures to mean anything.

Table 1 of EventGuard: every row is a call that works, and speed is what a clock says.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.attacks import eventguard
from papers.attacks.eventguard import (
    FIGURES,
    PAPER,
    figure_4,
    figure_5,
    figure_primitives,
    first_hop,
    unguarded,
    violated,
    wasted,
)
from papers.attacks.forgery import Transit
from papers.attacks.saturation import figure_saturation
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure
from papers.experiments.loads import figure_6
from papers.experiments.pubsub import BrokerPlacement, attackers, marked
from tests.papers.experiments.helpers import FEW, SLOW, SMALL, ignore, line, network, rows


def test_speeds_are_bytes_or_calls_by_the_clock_beside_the_papers() -> None:
    ticks = count()
    figure = figure_primitives(1, ignore, clock=lambda: next(ticks) / 1000, rounds=3, calls=2)
    assert (figure.experiment, figure.number) == ("eventguard", "table-1")
    assert [row["paper"] for row in rows(figure)] == list(PAPER.values())
    by_unit = {(row["primitive"], row["unit"]): row["ours"] for row in rows(figure)}
    # two calls take a tick of a millisecond
    assert by_unit["hash", "MB/s of 16 bytes"] == pytest.approx(2_000 * 16 / 1e6)
    assert by_unit["encryption", "MB/s of 1024 bytes"] == pytest.approx(2_000 * 1_024 / 1e6)
    assert by_unit["sign", "a second"] == by_unit["verify", "a second"] == pytest.approx(2_000)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1))
def test_clean_parts_give_what_walking_every_path_gives(seed: int, fraction: float):
    net = network(seed, FEW)
    bad = marked(attackers(net, BrokerPlacement.SPARSE, Draws("bad", seed)), round(fraction * net.nodes), net.nodes)
    hit = total = 0.0
    for home, topics in zip(net.publisher_at, net.publishes, strict=True):
        for topic in topics:
            for leaf in net.leaves_of[topic]:
                total += 1 / len(topics)
                hit += any(bad[v] for v in net.path(home, leaf)) / len(topics)
    assert violated(net, bad) == pytest.approx(hit / total)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1), st.sampled_from(list(BrokerPlacement)))
def test_floods_are_those_of_following_every_forgery(seed: int, fraction: float, placement: BrokerPlacement):
    net = network(seed, FEW)
    bad = marked(attackers(net, placement, Draws("bad", seed)), round(fraction * net.nodes), net.nodes)
    free = stopped = relayed = 0
    for source in (v for v in range(1, net.nodes + 1) if bad[v]):
        for leaves in net.leaves_of:
            paths = [net.path(source, leaf) for leaf in leaves]
            free += len(leaves) + sum(not bad[v] for v in set().union(*paths))
            stopped += leaves.count(source) + len({p[1] for p in paths if len(p) > 1 and not bad[p[1]]})
            ends = [next((v for v in path if not bad[v]), None) for path in paths]
            relayed += ends.count(None) + len({v for v in ends if v is not None})
    topics = net.size.topics
    assert unguarded(net, bad) == pytest.approx(free / topics)
    assert first_hop(net, bad, relayed=False) == pytest.approx(stopped / topics)
    assert first_hop(net, bad, relayed=True) == pytest.approx(relayed / topics)


# ------------------------------------------------------------------------------------------------- figures


def test_figure_4_rises_with_bad_nodes_and_guards_keep_it_at_zero():
    figure = figure_4(1, ignore, size=SMALL, runs=2)
    for name in ("N=16", "N=64", "N=128"):
        ys = line(figure, name)
        assert ys[0] == 0 < ys[4] < ys[-1] <= 1
        assert all(a <= b for a, b in pairwise(ys))
    assert set(line(figure, "EventGuard")) == {0.0}
    regions, nodes = line(figure, "VeilMQ, shares only"), line(figure, "N=128")
    assert all(a <= b for a, b in pairwise(regions))
    assert sum(regions[:4]) < sum(nodes[:4]), "two of three replicas are rarer than one node"


def test_figure_4_counts_what_a_broken_guard_lets_through(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eventguard, "Transit", lambda draws, guarded: Transit(draws, guarded=guarded, insider=True))
    monkeypatch.setattr(eventguard, "SAMPLED_MESSAGES", 8)
    figure = figure_4(1, ignore, size=SMALL, runs=1)
    assert line(figure, "EventGuard")[-1] > 0


def test_figure_5_guards_waste_less_than_none_and_clusters_less_than_scattered_attackers():
    figure = figure_5(1, ignore, size=SMALL, runs=3)
    siena, sparse = line(figure, "Siena"), line(figure, "EventGuard-sparse")
    assert siena[0] == sparse[0] == 0
    for name in ("Siena", "EventGuard-sparse"):
        assert all(a < b for a, b in pairwise(line(figure, name)))
    for at in range(1, len(siena)):
        one, ten = line(figure, "EventGuard-cluster-1")[at], line(figure, "EventGuard-cluster-10")[at]
        assert one <= sparse[at] < siena[at]
        assert ten <= sparse[at]
        assert one <= line(figure, "cluster-1, relayed")[at]
    assert "passed on 0" in figure.notes[0]


def test_figure_5_shows_a_node_that_lets_floods_through():
    net = network()
    orders = {place: attackers(net, place, Draws("order")) for place in BrokerPlacement}
    tight, leaky, open_ = (eventguard.flooded(net, orders, leak) for leak in (0.0, 0.1, 1.0))
    name = "EventGuard-sparse"
    assert tight[name][3] < leaky[name][3] < open_[name][3] == pytest.approx(tight["Siena"][3])


def test_bandwidth_without_floods_is_not_wasted():
    net = network()
    nobody = marked([], 0, net.nodes)
    assert wasted(net, nobody, net.receptions(), 0.0) == 0
    assert unguarded(net, nobody) == first_hop(net, nobody, relayed=True) == 0


# ----------------------------------------------------------------------------------------------------- all


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda seed: figure_4(seed, ignore, size=FEW, runs=1), marks=pytest.mark.slow),
        lambda seed: figure_5(seed, ignore, size=FEW, runs=1),
        lambda seed: figure_6(seed, ignore, size=FEW, runs=1),
        lambda seed: figure_saturation(seed, ignore, costs=SLOW, trees=(2,), subscribers=2, runs=1),
    ],
    ids=[number for number in FIGURES if number != "table-1"],  # that one is measured
)
def test_a_seed_says_all(run: Callable[[int], Figure]):
    first = run(3)
    assert first == run(3) != run(4)
    assert all(len(row) == len(first.columns) for row in first.rows)
    assert all(len(series.xs) == len(series.ys) for series in first.series)
    assert first.experiment == "eventguard"
    assert FIGURES[first.number].__name__ == f"figure_{first.number}"
