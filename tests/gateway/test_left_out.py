"""Real processes: replicas leave out what no client of a gateway wants, and the clients notice nothing (C10)."""

from __future__ import annotations

import time

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.overlay_processes import OverlayProcesses
from tests.waits import wait_until

SCOPE = {"filter": "plant/#", "tokens": True, "attributes": [{"name": "room", "show": "token"}]}
COUNT = 40


def in_room(room: str) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("room", room)]
    return properties


def test_replicas_leave_out_what_no_client_wants(overlay: OverlayProcesses) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "control": "north"})
    overlay.describe(lambda description: description.update(scopes=[SCOPE, {"filter": "open/#", "mode": "plain"}]))
    overlay.hand_out(*overlay.ports)
    overlay.configure("control", subscriptions={"predicates": True})
    overlay.start("north1", "north2", "north3", "site", "control")
    got: list[bytes] = []
    reader = overlay.client("control", "reader", paho.MQTTv5)
    reader.on_message = lambda client, userdata, message: got.append(message.payload)
    where = Properties(PacketTypes.SUBSCRIBE)
    where.UserProperty = [("$where", "room = 'attic'")]
    reader.subscribe("plant/#", qos=1, properties=where)
    device = overlay.client("site", "device", paho.MQTTv5)
    deadline = time.monotonic() + 20  # nothing here shows when the statement counts
    while not got and time.monotonic() < deadline:
        device.publish("plant/probe", b"there?", qos=1, properties=in_room("attic"))
        wait_until(lambda: bool(got), 0.2)
    before, came = overlay.figures("control"), len(got)
    for number in range(COUNT):
        room = "attic" if number % 10 == 9 else "cellar"
        device.publish("plant/line", b"%d" % number, qos=1, properties=in_room(room)).wait_for_publish(20)
    assert wait_until(lambda: b"39" in got)
    numbers = [payload for payload in got[came:] if payload != b"there?"]
    assert numbers == [b"9", b"19", b"29", b"39"], "all that is wanted, in order, and nothing else"
    after = overlay.figures("control")
    opened = after["counts"]["delivered"] - before["counts"]["delivered"]
    assert opened <= COUNT // 2, "the gateway was not even sent the most of it"
    assert after["counts"].get("holes", 0) == 0, "and did not miss it"
