"""Receipts through real processes: a device learns of them, the gateway proves them, and somebody else checks."""

from __future__ import annotations

import hashlib
import json
import time

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.overlay_processes import OverlayProcesses
from tests.support.processes import ending
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3")
TOPIC, PAYLOAD = "plant/valve", b"open the valve"


def begin(made: OverlayProcesses) -> None:
    scope = {"filter": "plant/#", "tokens": True, "receipts": True}
    made.make({"north": 3}, [], {"site": "north", "lab": "north"}, scopes=[scope])
    made.start(*REPLICAS, "site", "lab")


overlay = ending(begin)


def test_a_device_hears_who_has_its_message_and_a_stranger_can_check_it(overlay: OverlayProcesses) -> None:
    read: list[bytes] = []
    told: list[paho.MQTTMessage] = []
    reader = overlay.client("lab", "reader")
    reader.on_message = lambda client, userdata, message: read.append(message.payload)
    reader.subscribe(TOPIC, 1)
    device = overlay.client("site", "device", paho.MQTTv5)
    device.on_message = lambda client, userdata, message: told.append(message)
    device.subscribe(f"$veilmq/receipts/{TOPIC}", 1)
    numbered = Properties(PacketTypes.PUBLISH)
    deadline = time.monotonic() + 30
    while not told and time.monotonic() < deadline:  # the subscription has to cross first
        numbered.CorrelationData = b"order-7"
        device.publish(TOPIC, PAYLOAD, 1, properties=numbered).wait_for_publish(10)
        wait_until(lambda: bool(told), 3)
    assert set(read) == {PAYLOAD}
    message, said = told[0], json.loads(told[0].payload)
    assert (message.topic, said["reader"], message.retain) == (f"$veilmq/receipts/{TOPIC}", "lab", False)
    assert message.properties.CorrelationData == b"order-7"
    assert said["published_ms"] <= time.time() * 1000
    for client in (device, reader):
        client.disconnect()
        client.loop_stop()
    overlay.stop()
    rows = json.loads(overlay.veilmq("receipts", TOPIC, "-c", "site.yaml", "--json"))["messages"]
    (row,) = [each for each in rows if each["number"] == said["number"]]
    assert list(row["readers"]) == ["lab"]
    assert (row["topic"], row["payload_sha256"]) == (TOPIC, hashlib.sha256(PAYLOAD).hexdigest())
    overlay.veilmq("receipts", "prove", str(said["number"]), "-c", "site.yaml", "--out", "delivery.json")
    proved = json.loads(overlay.veilmq("verify", "delivery.json", "--overlay", "overlay.json", "--json"))
    assert (proved["publisher"], proved["reader"], proved["number"]) == ("site", "lab", said["number"])
    assert proved["payload_sha256"] == hashlib.sha256(PAYLOAD).hexdigest()
    assert "present key of lab" in proved["standing"]
