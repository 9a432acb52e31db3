"""Gateways and replicas as real processes: sealed traffic, kill -9, and who is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.overlay.region_client import Arrival, RegionClient
from keys.envelope import PROPERTY_HEADER, SignedHeader, from_property
from tests.gateway.overlay_processes import OverlayProcesses, run_veilmq
from tests.waits import until, wait_until

REPLICAS = ("north1", "north2", "north3")


def one_region(overlay: OverlayProcesses) -> OverlayProcesses:
    return overlay.make({"north": 3}, [], {"site": "north", "control": "north"})


class Subscriber:
    """A paho client that keeps what it gets."""

    def __init__(self, overlay: OverlayProcesses, gateway: str, topics: list[str], version: int = paho.MQTTv5) -> None:
        self.messages: list[paho.MQTTMessage] = []
        self.client = overlay.client(gateway, f"reader-of-{gateway}", version)
        self.client.on_message = lambda client, userdata, message: self.messages.append(message)
        self.client.subscribe([(topic, 2) for topic in topics])

    def payloads(self, topic: str) -> list[bytes]:
        return [m.payload for m in self.messages if m.topic == topic]


def accepted(overlay: OverlayProcesses, gateway: str) -> bool:
    """Whether the gateway's replicas acknowledged that it wants both scopes."""
    figures: list[dict[str, object]] = []
    watcher = overlay.client(gateway, f"watch-{time.monotonic()}")
    watcher.on_message = lambda client, userdata, message: figures.append(json.loads(message.payload))
    watcher.subscribe("$SYS/veilmq/figures")
    try:
        return wait_until(lambda: any(f["counts"].get("subscriptions_accepted", 0) >= 1 for f in figures))  # type: ignore[attr-defined]
    finally:
        watcher.disconnect()
        watcher.loop_stop()


def test_sealed_through_one_region_with_everything_a_client_sent(overlay: OverlayProcesses):
    one_region(overlay).start(*REPLICAS, "site", "control")
    reader = Subscriber(overlay, "control", ["plant/#", "open/#", "local/#"])
    assert accepted(overlay, "control")
    old = overlay.client("site", "old", paho.MQTTv311)
    new = overlay.client("site", "new", paho.MQTTv5)
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("unit", "C"), ("unit", "K")]
    properties.ContentType = "application/json"
    for number in range(30):
        old.publish("plant/line1/temp", b"old %d" % number, qos=number % 3)
        new.publish("plant/line2/temp", b"new %d" % number, qos=1, properties=properties)
    new.publish("open/weather", b"rain", qos=1)
    new.publish("local/door", b"open", qos=1)
    assert wait_until(lambda: len(reader.payloads("plant/line1/temp")) + len(reader.payloads("plant/line2/temp")) >= 60)
    got_old = reader.payloads("plant/line1/temp")
    for qos in range(3):  # MQTT keeps order among messages of one QoS (MQTT 5.0 §4.6)
        assert [p for p in got_old if int(p[4:]) % 3 == qos] == [b"old %d" % n for n in range(qos, 30, 3)]
    assert reader.payloads("plant/line2/temp") == [b"new %d" % n for n in range(30)]
    assert wait_until(lambda: reader.payloads("open/weather") == [b"rain"])
    assert reader.payloads("local/door") == []
    got = next(m for m in reader.messages if m.topic == "plant/line2/temp").properties
    assert got.UserProperty == [("unit", "C"), ("unit", "K")]
    assert got.ContentType == "application/json"


def test_wildcards_and_shared_subscriptions_work_on_names_that_replicas_do_not_see(overlay: OverlayProcesses):
    """`plant/#` travels under tokens; every client here subscribes as it would at any broker."""
    one_region(overlay).start(*REPLICAS, "site", "control")
    one_level = Subscriber(overlay, "control", ["plant/+/temp"])
    members: list[list[bytes]] = [[], []]
    for place, got in enumerate(members):

        def on_message(client: object, userdata: object, message: paho.MQTTMessage, got: list[bytes] = got) -> None:
            if not message.topic.startswith("plant/entities/"):
                got.append(message.payload)

        client = overlay.client("control", f"member-{place}", paho.MQTTv5)
        client.on_message = on_message
        client.subscribe("$share/readers/plant/#", 1)
    assert accepted(overlay, "control")
    device = overlay.client("site", "device")
    for number in range(20):
        device.publish(f"plant/line{number}/temp", b"%d" % number, qos=1)
        device.publish(f"plant/line{number}/speed/max", b"s%d" % number, qos=1)
    assert wait_until(lambda: len(one_level.messages) == 20 and sum(map(len, members)) == 40)
    assert {m.topic for m in one_level.messages} == {f"plant/line{n}/temp" for n in range(20)}
    assert sorted(members[0] + members[1]) == sorted([b"%d" % n for n in range(20)] + [b"s%d" % n for n in range(20)])
    assert all(members), "the group shares"
    stored = b"".join(
        path.read_bytes() for name in REPLICAS for path in overlay.directory.glob(f"data-{name}/*") if path.is_file()
    )
    assert b"line7" not in stored


def test_what_is_published_at_once_behind_a_suback_arrives_whether_or_not_the_scope_was_wanted(
    overlay: OverlayProcesses,
):
    """Replicas know of the subscription before the client is told of it."""
    one_region(overlay).start(*REPLICAS, "site", "control")
    holder = Subscriber(overlay, "control", ["plant/#"])
    assert accepted(overlay, "control")
    device = overlay.client("site", "device", paho.MQTTv5)
    for scope in ("plant", "open"):  # one that another client holds, and one that nobody here wanted yet
        late = overlay.client("control", f"late-{scope}", paho.MQTTv5)
        granted = threading.Event()
        got: list[bytes] = []
        late.on_message = lambda client, userdata, message, got=got: got.append(message.payload)
        late.on_subscribe = lambda client, userdata, mid, codes, properties, granted=granted: granted.set()
        late.subscribe(f"{scope}/late/#", 1)
        assert granted.wait(30)
        for number in range(500):
            device.publish(f"{scope}/late/{number % 5}", b"%d" % number, 1)
        assert wait_until(lambda got=got: len(got) >= 500)
        assert sorted(map(int, got)) == list(range(500))
    assert wait_until(lambda: len([m for m in holder.messages if "/late/" in m.topic]) == 500)


def test_devices_show_as_online_and_offline_at_the_other_gateway(overlay: OverlayProcesses):
    one_region(overlay).start(*REPLICAS, "site", "control")
    reader = Subscriber(overlay, "control", ["plant/entities/#"])
    assert accepted(overlay, "control")
    device = overlay.client("site", "pump-7")
    topic = "plant/entities/site/pump-7/availability"

    def states() -> list[str]:
        return [json.loads(payload)["state"] for payload in reader.payloads(topic)]

    assert wait_until(lambda: states() == ["online"]), states()
    for gateway in ("site", "control"):  # nobody speaks in the gateway's name, neither at it nor elsewhere
        overlay.client(gateway, f"forger-{gateway}").publish(topic, b"forged", qos=1, retain=True).wait_for_publish(10)
    device.loop_stop()
    device.socket().close()  # no DISCONNECT: as if the power failed
    assert wait_until(lambda: states() == ["online", "offline"]), states()
    late = Subscriber(overlay, "control", [topic])
    assert wait_until(lambda: bool(late.messages))
    assert late.messages[0].retain
    assert json.loads(late.messages[0].payload)["state"] == "offline"


def test_acknowledged_publications_survive_kill_9_without_any_replica(overlay: OverlayProcesses):
    one_region(overlay).start("site")
    device = overlay.client("site", "device")
    for number in range(50):
        device.publish("plant/a", b"%d" % number, qos=1).wait_for_publish(10)
    overlay.kill("site")
    device.loop_stop()
    overlay.start(*REPLICAS, "control")
    reader = Subscriber(overlay, "control", ["plant/#"])
    assert accepted(overlay, "control")
    overlay.start("site")
    assert wait_until(lambda: len(reader.payloads("plant/a")) >= 50)
    assert reader.payloads("plant/a") == [b"%d" % number for number in range(50)]


def test_a_replica_is_killed_and_comes_back_under_load(overlay: OverlayProcesses):
    overlay.make({"north": 3, "south": 3}, [("north", "south")], {"site": "north", "control": "south"})
    overlay.start(*REPLICAS, "south1", "south2", "south3", "site", "control")
    reader = Subscriber(overlay, "control", ["plant/#"])
    assert accepted(overlay, "control")
    time.sleep(1)  # the statement crosses to the other region; nothing at this gateway shows when
    device = overlay.client("site", "device")
    for number in range(300):
        device.publish(f"plant/{number % 3}", b"%d" % number, qos=1)
        if number == 75:
            overlay.kill("north2")
        if number == 150:
            overlay.start("north2")
        if number == 200:
            overlay.kill("south1")
        if number == 250:
            overlay.start("south1")
        time.sleep(0.008)
    assert wait_until(lambda: sum(len(reader.payloads(f"plant/{lane}")) for lane in range(3)) >= 300)
    for lane in range(3):
        assert reader.payloads(f"plant/{lane}") == [b"%d" % n for n in range(lane, 300, 3)]


# ------------------------------------------------------------------------------------ who is refused


def test_an_unknown_replica_and_a_wrong_certificate_are_refused(overlay: OverlayProcesses, tmp_path: Path):
    one_region(overlay).start("north1")
    other = OverlayProcesses(tmp_path / "other")
    other.directory.mkdir()
    one_region(other)
    stranger = other.directory / "north2"

    def dial(identity: Path, client_id: str) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
        with (
            socket.create_connection(("127.0.0.1", overlay.ports["north1"]), 5) as raw,
            context.wrap_socket(raw) as tls,
        ):
            name = client_id.encode()
            body = b"\x00\x04MQTT\x05\x02\x00\x0a\x00" + len(name).to_bytes(2) + name
            tls.sendall(b"\x10" + bytes([len(body)]) + body)
            answer = tls.recv(64)
            if answer[:1] == b"\x20" and answer[3] >= 0x80:
                raise ConnectionRefusedError(hex(answer[3]))
            if not answer:
                raise ConnectionResetError("hung up")
            assert answer[:1] == b"\x20", answer

    with pytest.raises((ConnectionError, ssl.SSLError)):
        dial(stranger, "north2")  # a trust domain that the overlay does not list
    with pytest.raises(ConnectionRefusedError, match="0x87"):
        dial(overlay.directory / "control", "site")  # a member under another member's name
    dial(overlay.directory / "control", "control")
    assert wait_until(lambda: "is none of the overlay's" in overlay.log("north1"))
    assert "Traceback" not in overlay.log("north1")


def test_a_hop_below_mqtt_5_is_refused(overlay: OverlayProcesses):
    one_region(overlay).start("north1")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="control", protocol=paho.MQTTv311)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    identity = overlay.directory / "control"
    context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
    client.tls_set_context(context)
    codes: list[int] = []
    client.on_connect = lambda c, u, flags, reason, props: codes.append(reason.value)
    client.connect("127.0.0.1", overlay.ports["north1"])
    client.loop_start()
    assert wait_until(lambda: bool(codes))
    client.loop_stop()
    assert codes[0] >= 0x80
    assert "strips user properties" in overlay.log("north1")


def one_line_error(*arguments: str, cwd: Path) -> str:
    result = run_veilmq(*arguments, cwd=cwd)
    assert result.returncode == 2, result
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("veilmq: ")
    return lines[0]


def test_a_tampered_view_is_refused_before_anything_listens(overlay: OverlayProcesses):
    one_region(overlay)
    path = overlay.directory / "north1-overlay.json"
    document = json.loads(path.read_text())
    body = document["views"][0]["body"]
    document["views"][0]["body"] = body[:20] + ("A" if body[20] != "A" else "B") + body[21:]
    path.write_text(json.dumps(document))
    assert "tampered" in one_line_error("broker", "-c", "north1.yaml", cwd=overlay.directory)


def test_two_replicas_cannot_share_a_secret(overlay: OverlayProcesses):
    with pytest.raises(Exception, match="cannot share a secret; give it at least 3, or mark it"):
        overlay.make({"north": 2}, [], {"site": "north"})


def test_a_member_that_the_overlay_does_not_list(overlay: OverlayProcesses, tmp_path: Path):
    one_region(overlay)
    other = OverlayProcesses(tmp_path / "other")
    other.directory.mkdir()
    other.make({"east": 3}, [], {"site": "east"})
    shutil.copytree(other.directory / "east1", overlay.directory / "east1")
    text = (overlay.directory / "north1.yaml").read_text().replace("identity: north1", "identity: east1")
    (overlay.directory / "north1.yaml").write_text(text)
    assert "east1 is no member" in one_line_error("broker", "-c", "north1.yaml", cwd=overlay.directory)


def test_a_port_in_use_is_one_line(overlay: OverlayProcesses):
    one_region(overlay)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", overlay.ports["north1"]))
        taken.listen()
        assert str(overlay.ports["north1"]) in one_line_error("broker", "-c", "north1.yaml", cwd=overlay.directory)


def test_check_says_what_happens_to_topics(overlay: OverlayProcesses):
    one_region(overlay)
    result = run_veilmq(
        "check", "-c", "site.yaml", "--json", "plant/a", "open/b", "else/c", "$SYS/x", cwd=overlay.directory
    )
    assert result.returncode == 0, result
    fates = {fate["topic"]: fate for fate in json.loads(result.stdout)["topics"]}
    assert fates["plant/a"]["fate"] == "protected"
    assert fates["plant/a"]["tokens"] is True
    assert fates["plant/a"]["keys"] == "keys riding, new after 64 messages, 1048576 bytes or 60 s"
    assert fates["open/b"]["fate"] == "shared plain"
    assert fates["else/c"]["fate"] == "local only"
    assert fates["$SYS/x"]["fate"] == "local only"


@pytest.mark.slow
def test_keys_on_a_topic_of_their_own_through_a_kill_and_for_a_late_joiner(overlay: OverlayProcesses):
    """A key a message; a replica that is killed comes back without memory and is needed: another one is killed then."""
    overlay.make({"north": 3}, [], {"site": "north", "control": "north", "late": "north"})
    overlay.describe(lambda d: d["scopes"][0].update(keys="topic", refresh={"messages": 1}))
    overlay.hand_out(*overlay.ports)
    overlay.start(*REPLICAS, "site", "control")
    topics = [f"plant/{n}" for n in range(4)]  # without what gateways say of their clients
    reader = Subscriber(overlay, "control", topics)
    assert accepted(overlay, "control")
    device = overlay.client("site", "device", paho.MQTTv5)

    def publish(start: int) -> None:
        for number in range(start, start + 20):
            device.publish(f"plant/{number % 4}", b"%d" % number, qos=1, retain=True)

    publish(0)
    assert wait_until(lambda: len(reader.messages) >= 20)
    overlay.kill("north1")
    publish(20)
    assert wait_until(lambda: len(reader.messages) >= 40)
    overlay.start("north1")
    assert wait_until(lambda: overlay.figures("site").get("links_up") == 3)
    overlay.kill("north2")
    overlay.start("late")
    late = Subscriber(overlay, "late", topics)
    assert wait_until(lambda: len(late.messages) >= 4)
    assert sorted(m.payload for m in late.messages) == [b"36", b"37", b"38", b"39"]
    publish(40)
    assert wait_until(lambda: len(reader.messages) >= 60)
    assert wait_until(lambda: len(late.messages) >= 24)


def test_a_receiver_that_was_away_misses_nothing(overlay: OverlayProcesses):
    """The replicas queue for a member whose session lives: an ingest job may be restarted."""
    one_region(overlay).start(*REPLICAS, "site")
    got: list[tuple[str, int]] = []

    def arrived(arrival: Arrival) -> None:
        if arrival.wire.payload:
            header = SignedHeader.decode(from_property(dict(arrival.wire.properties)[PROPERTY_HEADER])).header
            got.append((arrival.replica, header.sequence))
        arrival.acknowledge()

    async def receive(while_up: Callable[[], object], copies: int) -> None:
        client = RegionClient(overlay.directory / "control", overlay.directory / "overlay.json", ["open/#"], arrived)
        client.start()
        wants = client._node.interest._wants  # a quorum would do, but here copies of every replica count
        await until(lambda: client.is_accepted and all(len(want.acked) == 3 for want in wants.values()), 20)
        while_up()
        await until(lambda: len(got) >= copies, 20)
        await client.close()

    device = overlay.client("site", "device")
    asyncio.run(receive(lambda: device.publish("open/a", b"1", qos=1).wait_for_publish(10), 3))
    for number in range(20):
        device.publish(f"open/while-away/{number}", b"2", qos=1).wait_for_publish(10)
    asyncio.run(receive(lambda: None, 3 * 21))
    for replica in REPLICAS:
        numbers = [number for r, number in got if r == replica]  # each was answered before the next: a batch each
        assert len(numbers) == 21
        assert numbers == sorted(set(numbers))
