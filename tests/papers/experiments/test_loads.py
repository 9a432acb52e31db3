"""Who works how much: sums by hand, and what the figure must show."""

from __future__ import annotations

from itertools import pairwise

import pytest

from papers.experiments import loads
from papers.experiments.draws import Draws
from papers.experiments.loads import Costs, LoadReach, figure_6, reach_of
from papers.experiments.pubsub import NetworkSize
from tests.papers.experiments.helpers import FEW, SMALL, ignore, network


def test_figure_6_moves_load_from_publishers_to_the_key_service():
    figure = figure_6(1, ignore, size=SMALL, runs=2)
    service, publisher, subscriber, some, everywhere = (series.ys for series in figure.series)
    assert service[0] == 0
    assert some[0] == everywhere[0] == pytest.approx(1)
    assert all(a < b for a, b in pairwise(service))
    assert all(a > b for a, b in pairwise(publisher))
    assert all(s < n for s, n in zip(subscriber, everywhere, strict=True))
    assert all(s <= e for s, e in zip(some, everywhere, strict=True))


def test_loads_add_up_by_hand():
    costs = Costs(seal_us=1, sign_us=10, verify_us=20, open_us=2, derive_us=3, statement_us=5, check_statement_us=7)
    size = NetworkSize(subscribers=8, publishers=2)
    found = loads.loads(1.0, LoadReach(nodes=3, subscribers=4, statement_nodes=2), size, costs)
    third = 1 / 3
    assert found == pytest.approx(
        (third * (14 + 20 + 3), third * 11 / 2, third * (4 * 22 + 10) / 8, third * (60 + 28) / 4, third * (60 + 56) / 4)
    )


def test_without_subscriptions_only_publications_cost():
    service, publisher, subscriber, some, everywhere = loads.loads(0, LoadReach(2, 3, 9), NetworkSize(), Costs())
    assert service == 0
    assert some == everywhere > 0
    assert publisher > 0
    assert subscriber > 0


def test_reach_is_counted_on_the_network():
    net = network(size=FEW)
    reach = reach_of(net, Draws("reach"))
    assert reach.nodes == pytest.approx(sum(net.receptions()) / FEW.publishers)
    assert reach.subscribers == pytest.approx(net.deliveries() / FEW.publishers)
    assert 1 <= reach.statement_nodes <= net.nodes
