"""kill -9 of a real gateway in the middle of its backlog, with real replicas: nothing is lost or repeated."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from bridge.contract import Chain
from bridge.contract.machine import Publication
from gateway.data import DataDirectory
from gateway.outbox.store import Store, StoredEntry
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_region import REPLICAS, accepted, one_region
from tests.waits import wait_until

pytestmark = pytest.mark.invariant(39)

ENTRIES, TOPICS, KILLS = 3_000, 20, 2
DRAIN_S = 60.0


async def fill(directory: Path) -> None:
    """As a gateway that has the scope's key leaves them behind: in the chain of the scope. Each is a row of its own."""
    store, stored, all_are = Store(DataDirectory.open(directory)), list[object](), asyncio.Event()

    def done(result: object) -> None:
        stored.append(result)
        if len(stored) == ENTRIES:
            all_are.set()

    for n in range(ENTRIES):
        store.append(Publication(f"plant/{n % TOPICS}", b"%d" % n, 1, time_ms=1), done, Chain("plant/#", records=1))
    await all_are.wait()
    assert all(isinstance(each, StoredEntry) for each in stored)
    store.close()


@pytest.mark.slow
def test_a_gateway_killed_while_it_drains_delivers_its_backlog_and_what_came_meanwhile_in_order(
    overlay: OverlayProcesses,
) -> None:
    one_region(overlay)
    asyncio.run(fill(overlay.directory / "data-site"))
    got: defaultdict[str, list[int]] = defaultdict(list)
    overlay.start(*REPLICAS, "control")
    reader = overlay.client("control", "reader", paho.MQTTv5)

    def on_message(client: object, userdata: object, message: paho.MQTTMessage) -> None:
        if not message.topic.startswith("plant/entities/"):
            got[message.topic].append(int(message.payload))

    reader.on_message = on_message
    reader.subscribe("plant/#", 1)
    assert accepted(overlay, "control")

    def count() -> int:
        return sum(map(len, got.values()))

    acknowledged: defaultdict[str, list[int]] = defaultdict(list)
    number = ENTRIES
    for kill in range(KILLS + 1):
        overlay.start("site")
        device = overlay.client("site", f"device-{kill}")
        for _ in range(10):
            topic = f"plant/{number % TOPICS}" if number % 2 else "plant/new"
            device.publish(topic, b"%d" % number, qos=1).wait_for_publish(20)
            acknowledged[topic].append(number)
            number += 1
        if kill < KILLS:
            so_far = count()
            assert wait_until(lambda before=so_far: count() > before + 400, DRAIN_S)
            assert count() < ENTRIES, "it drains still"
            overlay.kill("site")
        device.disconnect()
        device.loop_stop()
    assert wait_until(lambda: count() >= number, DRAIN_S), f"{count()} of {number}"
    for topic, numbers in got.items():
        place = topic.removeprefix("plant/")
        backlog = list(range(int(place), ENTRIES, TOPICS)) if place.isdigit() else []
        assert numbers == backlog + acknowledged[topic], topic
    assert wait_until(lambda: overlay.figures("site").get("outbox_depth") == 0)
    assert "Traceback" not in "".join(overlay.log(name) for name in (*REPLICAS, "site", "control"))
