"""A real gateway that is stopped or killed while others publish: its persistent QoS 2 client gets everything once.

Replicas keep for the gateway what it did not acknowledge; it acknowledges what is on its disk. Retained publications do
not come again. The same at every moment, and with liars, is simulated in `tests/sim/test_restarts.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter

import paho.mqtt.client as paho
import pytest

from gateway.client.mqtt_client import MqttClient
from gateway.mqtt5.packets import Publish
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_region import REPLICAS, accepted, one_region
from tests.seldom import slow

pytestmark = pytest.mark.invariant(32)

LIVES = 3
RETAINED = 5
SETTLE_S = 60.0


def restart(overlay: OverlayProcesses, how: signal.Signals) -> None:
    process = overlay.running.pop("control")
    process.send_signal(how)
    process.wait(30)


@pytest.mark.attack(2)
@pytest.mark.parametrize("how", [*slow([signal.SIGTERM]), signal.SIGKILL], ids=lambda how: how.name)
def test_a_persistent_client_gets_everything_once(overlay: OverlayProcesses, how: signal.Signals) -> None:
    one_region(overlay)
    overlay.configure("control", limits={"queue_messages": 100_000})
    overlay.start(*REPLICAS, "site", "control")
    asyncio.run(lives(overlay, how))


async def lives(overlay: OverlayProcesses, how: signal.Signals) -> None:
    got: Counter[bytes] = Counter()
    session = {"clean_start": False, "session_expiry_s": 3600, "random": lambda: 0.0}
    reader = MqttClient("127.0.0.1", overlay.ports["control"], client_id="reader", **session)  # type: ignore[arg-type]

    def heard(publish: Publish) -> None:
        if not publish.topic.startswith("plant/entities/"):
            got[publish.payload] += 1

    reader.on_publish = heard
    reader.subscribe("plant/#", 2, retain_handling=2)
    await reader.connect()
    assert await asyncio.to_thread(accepted, overlay, "control")
    device = overlay.client("site", "device", paho.MQTTv5)
    sent: dict[int, bytes] = {}
    acknowledged: set[int] = set()
    device.on_publish = lambda client, userdata, mid, code, properties: acknowledged.add(mid)
    stop = asyncio.Event()

    async def publish() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            payload = b"%d" % number
            topic = f"plant/{number % 7}" if number % 10 else f"plant/kept/{number // 10 % RETAINED}"
            sent[device.publish(topic, payload, 2, retain=number % 10 == 0).mid] = payload
            await asyncio.sleep(0.01)

    publishing = asyncio.create_task(publish())
    for _ in range(LIVES):
        await asyncio.sleep(0.7)
        await asyncio.to_thread(restart, overlay, how)
        await asyncio.sleep(0.7)
        await asyncio.to_thread(overlay.start, "control")
    await asyncio.sleep(1.0)
    stop.set()
    await publishing
    async with asyncio.timeout(SETTLE_S):
        while len(acknowledged) < len(sent) or len(got) < len(sent):
            await asyncio.sleep(0.05)
    await asyncio.to_thread(restart, overlay, how)
    await asyncio.to_thread(overlay.start, "control")
    assert await asyncio.to_thread(accepted, overlay, "control")  # with it replicas send what they retain
    await asyncio.sleep(1.0)
    await reader.close()
    device.loop_stop()
    assert set(got) == set(sent.values())
    assert [payload for payload, times in got.items() if times > 1] == []
