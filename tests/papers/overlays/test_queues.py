"""Queues of brokers: nothing lost or repeated whatever the routing, and times that can be worked out by hand."""

from __future__ import annotations

import pytest

from papers.experiments.draws import Draws
from papers.overlays.planes import SYMBOLS, Flooded, Market, caterpillar
from papers.overlays.queues import Algorithm, QueuedNotification, Run, Service

SCOT = caterpillar(3, 2, 3)
FLOODED = Flooded(SCOT, Draws("f"))


def market(subscribers: int = 60) -> Market:
    return Market(SCOT, subscribers, Draws("market", 1))


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("gap_s", [1.0, 0.0001])
def test_each_subscriber_gets_each_once(algorithm: Algorithm, gap_s: float) -> None:
    made = market()
    said = [QueuedNotification(at * gap_s, at % len(SCOT.brokers), at % SYMBOLS) for at in range(300)]
    outcome = Run(made, algorithm, Service(), FLOODED).play(said)
    assert sum(outcome.weights) == sum(sum(made.local[one.symbol].values()) for one in said)
    assert len(outcome.delays_s) == sum(len(made.local[one.symbol]) for one in said)
    assert min(outcome.delays_s) > 0


def test_without_queues_dynamic_routing_does_what_static_routing_does() -> None:
    said = [QueuedNotification(float(at), at % len(SCOT.brokers), at) for at in range(50)]
    static, dynamic = (Run(market(), one, Service()).play(said) for one in (Algorithm.SNR, Algorithm.DNR))
    assert static == dynamic


def test_a_hop_takes_matching_sending_the_link_and_matching_again() -> None:
    made = market(0)
    made.hire([1])
    outcome = Run(made, Algorithm.SNR, Service(1.0, 0.0, 2.0, 4.0, 8.0)).play([QueuedNotification(0.0, 0, SYMBOLS)])
    assert outcome.delays_s == pytest.approx([0.016])
    assert (outcome.messages, outcome.matching_ms) == (1, pytest.approx(2.0))


def test_identifiers_cost_their_handling_and_carrying() -> None:
    made = market(0)
    made.hire([FLOODED.neighbours[0][0]])
    service = Service(1.0, 0.0, 2.0, 4.0, 8.0, 500.0)
    if FLOODED.last_hop[FLOODED.neighbours[0][0]][0] != FLOODED.neighbours[0][0]:
        pytest.skip("the flood came another way")
    outcome = Run(made, Algorithm.BID, service, FLOODED).play([QueuedNotification(0.0, 0, SYMBOLS)])
    assert outcome.delays_s == pytest.approx([0.016 + 3 * 0.0005])


def test_dynamic_routing_shortens_what_a_burst_waits() -> None:
    made = market(0)
    made.hire(list(range(1, len(SCOT.brokers), 2)))
    said = [QueuedNotification(at / 2000, 0, SYMBOLS) for at in range(1000)]
    service = Service(send_ms=2.0, link_ms=1.0)
    static, dynamic = (Run(made, one, service).play(said) for one in (Algorithm.SNR, Algorithm.DNR))
    assert dynamic.mean_delay_s < static.mean_delay_s
    assert len(dynamic.fast) == len(static.fast)
