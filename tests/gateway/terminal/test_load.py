"""A measured load: every message is counted, and losses, repetitions and wrong order are seen."""

from __future__ import annotations

import pytest

from gateway.mqtt5.packets import Publish, Version
from gateway.terminal import BenchLoad, Server, TerminalError, measure
from gateway.terminal.load import _HEAD, PROBE, _Run, percentiles
from tests.gateway.harness import on_loop, serving


@on_loop
@pytest.mark.parametrize(("version", "qos"), [(Version.V5, 0), (Version.V5, 1), (Version.V311, 2)])
async def test_all_that_was_sent_is_counted(version: Version, qos: int) -> None:
    async with serving() as broker:
        server = Server(port=broker.port(), version=version)
        found = await measure(server, server, BenchLoad("load", 3, 2, messages=100, qos=qos, in_flight=7))
    assert (found.sent, found.expected, found.received, found.lost) == (100, 200, 200, 0)
    assert (found.repeated, found.disordered, found.reconnects) == (0, 0, 0)
    assert bool(found.acknowledged) == bool(qos)
    assert 0 < found.delivered["p50"] <= found.delivered["p99"] <= found.delivered["max"]
    assert found.to_json()["received_per_s"] > 0


@on_loop
async def test_a_rate_is_kept() -> None:
    async with serving() as broker:
        server = Server(port=broker.port())
        found = await measure(server, server, BenchLoad("load", 2, 0, messages=40, rate=200.0))
    assert found.sent_s >= 39 / 200 - 0.01
    assert (found.expected, found.lost) == (0, 0)


@on_loop
async def test_what_is_lost_repeated_or_out_of_order_is_seen() -> None:
    server = Server()
    run = _Run(BenchLoad("load", 1, 1, messages=5), server, server)
    subscriber = run._subscribers[0]

    def came(number: int, run_id: bytes = run._id) -> None:
        run._take_publish(subscriber, Publish("load/0", _HEAD.pack(run_id, 0, number, 1) + bytes(40)))

    for number in (0, 2, 1, 1, 4, PROBE, 5, 70_000):
        came(number)
    came(3, b"another.")
    run._take_publish(subscriber, Publish("load/0", b"short"))
    found = run._figures(0, 1)
    assert (found.received, found.lost, found.repeated, found.disordered) == (4, 1, 1, 1)
    assert subscriber.heard == {0}


@on_loop
async def test_what_cannot_be_measured_is_said() -> None:
    async with serving({"limits": {"topic_levels": 1}}) as broker:
        server = Server(port=broker.port())
        for load, said in (
            (BenchLoad(size=5), "smallest is 24"),
            (BenchLoad(publishers=20_000), "clients"),
            (BenchLoad(messages=10**9), "to receive"),
            (BenchLoad(), r"refused the subscription to bench/\+: topic filter invalid \(0x8f\)"),
        ):
            with pytest.raises(TerminalError, match=said):
                await measure(server, server, load)


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    found = percentiles([n * 1_000_000 for n in range(1, 101)])
    assert found == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 100.0, "max": 100.0}
    assert percentiles([]) == {}
