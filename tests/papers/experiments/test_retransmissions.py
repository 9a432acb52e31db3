"""What bad brokers cost, and what failover and placement save."""

from __future__ import annotations

import pytest

from bridge.topology.placement import SHARING_MIN
from papers.experiments.draws import Draws
from papers.experiments.retransmissions import TRIED_AGAIN_EVERY, LossyNetwork, anywhere, by_need, compared
from papers.experiments.secret_forwarding import FIGURES
from tests.papers.experiments.helpers import rows, silent


def test_loads_of_brokers_are_those_of_all_paths_walked():
    network = LossyNetwork(30, 3, 1.0, 1_000)
    walked = [0.0] * 30
    for a, weight in enumerate(network.weights):
        for b, other in enumerate(network.weights):
            for v in network.tree.path(a, b):
                walked[v] += 1_000 * weight * other
    assert network.loads == pytest.approx(walked)


def test_figure_11_at_full_size_exceeds_the_papers_2_5_million_where_the_paper_does():
    figure = FIGURES["11"](1, silent, alphas=(1.0,), clusterings=(0.5,), bad=(15,), runs=20)
    by_name = {str(row["failover"]): float(row["retransmissions"]) for row in rows(figure)}
    assert 2.5e6 < by_name["off"] < 4e6
    assert by_name["three everywhere"] < by_name["off"] / 500
    assert by_name["by need, one pack"] < by_name["uniform"] / 10
    assert by_name["by need, one pack"] < by_name["by need, packs add up"] < by_name["uniform"]


def test_failover_needs_three_replicas_and_tries_a_silent_one_again_now_and_then():
    network = LossyNetwork(30, 3, 0.5, 100_000)
    assert network.retransmissions([0]) == network.loads[0]
    assert network.retransmissions([0], {0: 1}) == network.loads[0]
    with_failover = network.retransmissions([0], {0: SHARING_MIN})
    assert network.loads[0] / TRIED_AGAIN_EVERY * 0.9 < with_failover < network.loads[0] / TRIED_AGAIN_EVERY + 5


def test_placement_by_need_finds_the_bad_brokers_that_traffic_meets():
    network = LossyNetwork(60, 5, 0.5, 1_000)
    paths = network.observed(Draws("seen"), 300)
    sizes = by_need(paths, [0, 2], 4, one_pack=True)
    assert {v for v, size in sizes.items() if size >= SHARING_MIN} == {0, 2}


def test_all_strategies_meet_the_same_bad_brokers():
    network = LossyNetwork(60, 5, 0.5, 10_000)
    found = compared(network, 60, 1.0, 120, 2, 1)  # everybody is bad, and everybody can get three
    assert found["uniform"] == found["three everywhere"]
    assert all(found["off"][run] == pytest.approx(sum(network.loads)) for run in range(2))


def test_uniform_budgets_make_as_many_virtual_nodes_as_they_pay_for():
    sizes = anywhere(30, 9, Draws("uniform"))
    assert len(sizes) == 4
    assert set(sizes.values()) == {SHARING_MIN}
    assert len(anywhere(3, 100, Draws("uniform"))) == 3


def test_paths_that_are_seen_twice_count_once():
    network = LossyNetwork(5, 2, 2.0, 1_000)
    paths = network.observed(Draws("seen"), 500)
    assert len(paths) == len({path.nodes for path in paths}) <= 25


def test_nobody_bad_costs_nothing():
    assert LossyNetwork(30, 3, 0.5, 1_000).retransmissions([]) == 0
