"""Real processes: a client in one region reads what only another region keeps (docs/protocol-options.md §12.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.gateway.overlay_processes import OverlayProcesses
from tests.seldom import slow
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3", "south1", "south2", "south3")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[OverlayProcesses]:
    made = OverlayProcesses(tmp_path)
    yield made
    made.stop()


def kept_in_the_north(description: dict[str, Any]) -> None:
    description["scopes"][0]["history"] = {"days": 7, "gigabytes": 1, "regions": ["north"]}


@pytest.mark.parametrize("gone", [(), *slow([("north3", "south1")])], ids=["nobody away", "one away in each region"])
def test_a_client_reads_since_an_hour_ago_what_only_the_other_region_keeps(
    processes: OverlayProcesses, gone: tuple[str, ...]
) -> None:
    processes.make({"north": 3, "south": 3}, [("north", "south")], {"site": "north", "desk": "south"})
    processes.describe(kept_in_the_north)
    processes.hand_out(*processes.ports)
    processes.start(*REPLICAS, "site", "desk")
    publisher = processes.client("site", "pump")
    sent = [f"{number}".encode() for number in range(40)]
    for number, payload in enumerate(sent[:30]):
        publisher.publish("plant/pump", payload, qos=1 + number % 2).wait_for_publish(30)
    for name in gone:
        processes.kill(name)
    got: list[bytes] = []

    def take(client: object, userdata: object, message: paho.MQTTMessage) -> None:
        if message.topic == "plant/pump":  # the broker itself says who is alive
            got.append(bytes(message.payload))

    reader = processes.client("desk", "reader", paho.MQTTv5)
    reader.on_message = take
    try:
        reader.subscribe("$since/1h/plant/#", qos=1)  # of QoS 2 a library may tell later
        assert wait_until(lambda: len(got) >= 30, 90.0), (len(got), processes.log("desk")[-3000:])
        for payload in sent[30:]:
            publisher.publish("plant/pump", payload, qos=1).wait_for_publish(30)
        assert wait_until(lambda: len(got) >= 40, 30.0), (got, processes.log("desk")[-3000:])
    finally:
        for client in (reader, publisher):
            client.disconnect()
            client.loop_stop()
    assert got == sent
    counts = processes.figures("desk")["counts"]
    assert any(name.startswith("far_asked") for name in counts), counts
