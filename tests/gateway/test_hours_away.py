"""A gateway that is dead for hours while its region goes on: real processes, whose clocks the test puts forward."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.injected_clock import VEILMQ_AHEAD, InjectedClock
from tests.gateway.overlay_processes import OverlayProcesses
from tests.waits import wait_until

MEMBERS = ("north1", "north2", "north3", "site", "control")
MESSAGES = 100_000
PARTS = 4
HOUR_S = 3_600.0
ROOM = {"queue_messages": 200_000, "queue_bytes": 1 << 28}  # of the client, while it is not there yet


class Desk:
    """A client with a session of seven days that keeps what comes, by topic and QoS."""

    def __init__(self, overlay: OverlayProcesses) -> None:
        self._overlay = overlay
        self.came: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.total = 0
        self._lock = threading.Lock()
        self._client: paho.Client | None = None

    def connect(self) -> bool:
        """Connects; returns True if the session was there."""
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "desk", protocol=paho.MQTTv5)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 7 * 86_400
        properties.ReceiveMaximum = 1_000
        present = threading.Event()
        there: list[bool] = []

        def on_connect(client: object, userdata: object, flags: paho.ConnectFlags, *rest: object) -> None:
            there.append(flags.session_present)
            present.set()

        client.on_connect, client.on_message = on_connect, self._take
        client.connect(*self._overlay.endpoint("control"), clean_start=False, properties=properties)
        client.loop_start()
        assert present.wait(30)
        self._client = client
        return there[0]

    def subscribe(self) -> None:
        assert self._client is not None
        done = threading.Event()
        self._client.on_subscribe = lambda *_: done.set()
        self._client.subscribe("plant/line/#", 2)
        assert done.wait(30)

    def _take(self, client: object, userdata: object, message: paho.MQTTMessage) -> None:
        with self._lock:
            self.came[message.topic, message.qos].append(int(message.payload))
            self.total += 1

    def close(self) -> None:
        assert self._client is not None
        self._client.disconnect()
        self._client.loop_stop()


def publish(overlay: OverlayProcesses, numbers: range) -> None:
    """By turns at QoS 1 and 2, on three topics."""
    device = paho.Client(paho.CallbackAPIVersion.VERSION2, "device", protocol=paho.MQTTv5)
    device.max_inflight_messages_set(1_000)
    device.connect(*overlay.endpoint("site"))
    device.loop_start()
    sent = [device.publish(f"plant/line/{number % 3}", b"%d" % number, 1 + number % 2) for number in numbers]
    for each in sent:
        each.wait_for_publish(120)
    device.disconnect()
    device.loop_stop()


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_a_hundred_thousand_messages_of_the_hours_without_their_gateway_come_once_and_in_order(
    overlay: OverlayProcesses,
) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "control": "north"})
    overlay.describe(lambda told: told["scopes"][0].update(history={"days": 7, "gigabytes": 1}))
    overlay.hand_out(*MEMBERS)
    overlay.configure("control", limits=ROOM)
    clock = InjectedClock(overlay.directory)
    overlay.start(*MEMBERS, command=VEILMQ_AHEAD)
    desk = Desk(overlay)
    assert not desk.connect()
    desk.subscribe()
    publish(overlay, range(100))
    assert wait_until(lambda: desk.total == 100, 30)
    desk.close()

    overlay.kill("control")
    part = MESSAGES // PARTS
    for first in range(100, MESSAGES + 100, part):
        publish(overlay, range(first, first + part))
        assert wait_until(lambda: overlay.figures("site").get("outbox_depth") == 0, 120, 0.5)
        time.sleep(1.0)  # replicas write behind the traffic, at most half a second later
        clock.forward(HOUR_S)
    began = time.monotonic()
    overlay.start("control", command=VEILMQ_AHEAD)
    assert desk.connect(), "its session of seven days is there"
    assert wait_until(lambda: desk.total >= MESSAGES + 100, 600, 0.5), desk.total
    print(f"{MESSAGES} messages of {PARTS} hours came within {time.monotonic() - began:.0f} s of the start")
    publish(overlay, range(MESSAGES + 100, MESSAGES + 200))
    assert wait_until(lambda: desk.total >= MESSAGES + 200, 60)
    time.sleep(3.0)  # what comes twice comes late
    desk.close()
    assert overlay.figures("control")["counts"]["read_on"] >= 1, (
        "replicas had forgotten the session: it came from histories"
    )
    every = defaultdict(list)
    for number in range(MESSAGES + 200):
        every[f"plant/line/{number % 3}", 1 + number % 2].append(number)
    assert {key: len(came) for key, came in desk.came.items()} == {key: len(want) for key, want in every.items()}
    assert desk.came == every, "each once, in order"
