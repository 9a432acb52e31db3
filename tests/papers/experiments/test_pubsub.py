"""The EventGuard network: links, paths, what passes where, and attackers that come one after another."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.experiments.draws import Draws
from papers.experiments.pubsub import (
    BrokerPlacement,
    NetworkSize,
    PubSubNetwork,
    attackers,
    components,
    marked,
    one_way_ms,
)
from tests.papers.experiments.helpers import FEW, network


def test_links_have_the_papers_round_trips():
    draws = Draws("links")
    round_trips = [2 * one_way_ms(draws) for _ in range(20_000)]
    assert 24 <= min(round_trips) < 26
    assert 180 < max(round_trips) <= 184
    assert fmean(round_trips) == pytest.approx(74, abs=1.5)
    assert pstdev(round_trips) == pytest.approx(50, abs=1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.integers(1, 64))
def test_a_path_goes_along_links_and_visits_nothing_twice(a: int, b: int):
    path = network().path(a, b)
    assert (path[0], path[-1]) == (a, b)
    assert len(set(path)) == len(path)
    assert all(max(u, v) // 2 == min(u, v) for u, v in pairwise(path))


def test_receptions_are_those_of_following_every_publication():
    net = network(size=FEW)
    counted = [0.0] * (net.nodes + 1)
    for home, topics in zip(net.publisher_at, net.publishes, strict=True):
        for topic in topics:
            for v in {home}.union(*(net.path(home, leaf) for leaf in net.leaves_of[topic])):
                counted[v] += 1 / len(topics)
    assert net.receptions() == pytest.approx(counted)


@pytest.mark.parametrize("placement", list(BrokerPlacement))
def test_every_node_turns_bad_once_and_clusters_are_few(placement: BrokerPlacement):
    net = network()
    order = attackers(net, placement, Draws("order"))
    assert sorted(order) == list(range(1, net.nodes + 1))
    parts = set(components(net.nodes, marked(order, 20, net.nodes))) - {0}
    if placement is BrokerPlacement.SPARSE:
        assert len(parts) > 5
    else:
        assert 1 <= len(parts) <= placement.value


def test_a_network_has_the_size_that_was_asked_for():
    size = NetworkSize(subscribers=32, publishers=3, topics=6, topics_a_publisher=4, topics_a_subscriber=2)
    net = PubSubNetwork(size, Draws("size"))
    assert net.nodes == 16
    assert (len(net.publisher_at), len(net.subscriptions)) == (3, 64)
    assert all(8 < home <= 16 for home in net.publisher_at), "clients are at leaves"
    assert all(8 < leaf <= 16 for leaf, _ in net.subscriptions)
    assert all(len(set(topics)) == 4 and set(topics) <= set(range(6)) for topics in net.publishes)
    assert sum(map(len, net.wanted_at)) == sum(map(len, net.leaves_of)) == 64
    assert net.deliveries() == sum(len(net.leaves_of[t]) / 4 for topics in net.publishes for t in topics)


def test_what_is_wanted_in_each_direction_is_what_subscribers_there_want():
    net = network(size=FEW)
    for v in range(1, net.nodes + 1):
        for neighbour, wanted in net.topics_by_link(v):
            behind = {t for leaf, t in net.subscriptions if neighbour in net.path(v, leaf)}
            assert {t for t in range(FEW.topics) if wanted >> t & 1} == behind


def test_parts_that_hang_together_are_named_by_their_topmost_node():
    bad = marked([2, 4, 5, 3, 1], 4, 7)  # 2 with both children, and 3 beside them
    assert bad == [False, False, True, True, True, True, False, False]
    assert components(7, bad) == [0, 0, 2, 3, 2, 2, 0, 0]
    assert components(7, marked([1, 2, 3], 3, 7))[1:4] == [1, 1, 1]
