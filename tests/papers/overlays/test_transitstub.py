"""Networks as the paper's: joined, large enough, the same from the same seed."""

from __future__ import annotations

from papers.experiments.draws import Draws
from papers.overlays.transitstub import broker_costs, distances, network

LINKS = network(Draws("network", 1))


def test_a_network_is_joined_and_has_more_than_ten_thousand_nodes() -> None:
    assert len(LINKS) > 10_000
    assert max(distances(LINKS, 0)) < float("inf")


def test_ways_are_shortest() -> None:
    """No link makes a way shorter than what was found."""
    found = distances(LINKS, 5)
    assert found[5] == 0
    assert all(found[there] <= found[here] + length for here in range(500) for there, length in LINKS[here])


def test_costs_between_brokers_fill_the_range_and_follow_from_the_seed() -> None:
    costs = broker_costs(LINKS, 8, Draws("brokers", 1))
    among = [cost for at, row in enumerate(costs) for to, cost in enumerate(row) if at != to]
    assert (min(among), max(among)) == (0.0, 1.0)
    assert all(abs(costs[a][b] - costs[b][a]) < 1e-9 for a in range(8) for b in range(8))
    assert costs == broker_costs(LINKS, 8, Draws("brokers", 1))
    assert costs != broker_costs(LINKS, 8, Draws("brokers", 2))
