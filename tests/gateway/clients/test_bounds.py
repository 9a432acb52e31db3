"""Every bound of `limits`: what happens to whoever reaches it, and that it is counted and documented."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.base.limits import Limits
from gateway.broker.waits import Wait
from gateway.clients.bounds import Pace
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    Properties,
    PubAck,
    Publish,
    PubRec,
    Version,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from gateway.sockets.connection import MqttConnection
from tests.gateway.ending import ends
from tests.gateway.harness import Wire, serving
from tests.gateway.sockets.test_connection import RecordingTransport
from tests.waits import until

MANUAL = Path(__file__).parents[3] / "docs" / "reference" / "bounds.md"
TOO_MUCH = ReasonCode.QUOTA_EXCEEDED


def reached(broker: Any, bound: str) -> int:
    """What the metric says."""
    for metric in broker.operation.collect():
        if metric.name == "veilmq_limit_reached":
            return next(int(sample.value) for sample in metric.samples if sample.labels["limit"] == bound)
    raise AssertionError("no metric")


async def fake(broker: Any, host: str) -> RecordingTransport:
    """A connection from any address."""
    transport = RecordingTransport()
    transport._extra["peername"] = (host, 5)  # type: ignore[attr-defined]
    MqttConnection(broker.lifecycle, broker._flusher, "default", False, False).connection_made(transport)
    return transport


def test_the_table_of_the_manual_lists_every_bound_with_its_default() -> None:
    bounds = MANUAL.read_text("utf-8").partition("\n## Of a broker\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\d.,]+|true|false) \|", bounds, re.MULTILINE)
    said = {name: json.loads(default.replace(",", "")) for name, default in rows}
    assert said == dict(Limits())


def test_every_bound_has_a_metric() -> None:
    async def check() -> None:
        async with serving() as broker:
            shown: dict[str, set[str]] = {}
            for metric in broker.operation.collect():
                shown[metric.name] = {sample.labels.get("limit", "") for sample in metric.samples}
            assert shown["veilmq_limit"] == shown["veilmq_limit_reached"] == set(Limits.model_fields)

    asyncio.run(check())


def test_connections_of_one_address_are_bounded_and_others_still_get_in() -> None:
    async def check() -> None:
        async with serving({"limits": {"connections_per_address": 2, "connections": 8}}) as broker:
            same = [await fake(broker, "192.0.2.7") for _ in range(3)]
            assert [one.ended for one in same] == ["", "", "aborted"]
            network = [await fake(broker, f"2001:db8:0:1::{n}") for n in range(1, 4)]
            assert [one.ended for one in network] == ["", "", "aborted"], "a /64 counts as one address"
            mapped = await fake(broker, "::ffff:192.0.2.7")
            assert mapped.ended == "aborted", "the same IPv4 address through a socket of IPv6"
            assert (await fake(broker, "2001:db8:0:2::1")).ended == ""
            assert reached(broker, "connections_per_address") == 3
            local = [await Wire.connect(broker) for _ in range(3)]
            assert all(one.connack is not None and one.connack.code == 0 for one in local)
            assert (await fake(broker, "198.51.100.1")).ended == "", "an address with most loses one for another"
            assert [one.ended for one in (*same, *network)].count("aborted") == 3
            assert reached(broker, "connections") == 1
            for connection in list(broker.lifecycle.connections):
                if connection.client is None:
                    connection.connection_lost(None)
            assert (await fake(broker, "192.0.2.7")).ended == "", "what was given back may be taken again"
            for connection in list(broker.lifecycle.connections):
                if connection.client is None:
                    connection.connection_lost(None)

    asyncio.run(check())


def test_silent_connections_make_room_for_those_that_say_connect() -> None:
    async def check() -> None:
        async with serving({"limits": {"half_open": 3}}) as broker:
            silent = [await Wire.open(broker) for _ in range(3)]
            await until(lambda: len(broker.lifecycle.connections) == 3)
            for _ in range(5):
                spoken = await Wire.connect(broker)
                assert spoken.connack is not None
                assert spoken.connack.code == 0
            assert await silent[0].closed() == [], "the one that was silent longest"
            silent[2].send(Connect("late"))
            assert isinstance(await silent[2].next(), ConnAck)
            assert reached(broker, "half_open") == 1

    asyncio.run(check())


def test_a_silent_connection_is_counted_when_its_time_is_over() -> None:
    async def check() -> None:
        async with serving({"limits": {"connect_timeout_s": 0.05}}) as broker:
            assert await (await Wire.open(broker)).closed() == []
            assert reached(broker, "connect_timeout_s") == 1

    asyncio.run(check())


def test_connect_is_bounded_more_tightly_than_what_comes_after_it() -> None:
    async def check() -> None:
        async with serving({"limits": {"connect_bytes": 300}}) as broker:
            wire = await Wire.open(broker)
            wire.send(Connect("c", username="u" * 300))
            assert await wire.closed() == []
            wire = await Wire.open(broker)
            wire.send(Connect("c"), Publish("t", b"x" * 1_000, 1, packet_id=1))
            await wire.expect(ConnAck)
            assert (await wire.expect(PubAck)).code in (0, ReasonCode.NO_MATCHING_SUBSCRIBERS)
            assert reached(broker, "connect_bytes") == 1

    asyncio.run(check())


@pytest.mark.parametrize(
    ("limits", "packets", "code", "bound"),
    [
        ({"packet_bytes": 300}, [Publish("t", b"x" * 300)], ReasonCode.PACKET_TOO_LARGE, "packet_bytes"),
        (
            {"topic_aliases": 2},
            [Publish("t", properties=Properties(topic_alias=3), payload=b"")],
            ReasonCode.TOPIC_ALIAS_INVALID,
            "topic_aliases",
        ),
        (
            {"receive_maximum": 2},
            [Publish("t", b"", 2, packet_id=number) for number in (1, 2, 3)],
            ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            "receive_maximum",
        ),
    ],
)
def test_who_exceeds_what_connack_allowed_is_told_and_disconnected(
    limits: dict[str, Any], packets: list[Any], code: ReasonCode, bound: str
) -> None:
    async def check() -> None:
        async with serving({"limits": limits}) as broker:
            wire = await Wire.connect(broker, "c")
            wire.send(*packets)
            *_, bye = await wire.closed()
            assert isinstance(bye, Disconnect)
            assert bye.code == code
            assert reached(broker, bound) == 1
            liar = await Wire.connect(broker, "liar")
            liar.send(Disconnect(code))
            await liar.closed()
            assert reached(broker, bound) == 1, "what a client's own DISCONNECT says is no bound of ours"

    asyncio.run(check())


def test_sessions_and_their_life_are_bounded() -> None:
    async def check() -> None:
        async with serving({"limits": {"sessions": 1, "session_expiry_s": 60}}) as broker:
            wire = await Wire.connect(broker, "a", properties={"session_expiry_s": 1_000})
            assert wire.connack is not None
            assert wire.connack.properties.session_expiry_s == 60
            other = await Wire.connect(broker, "b")
            assert other.connack is not None
            assert other.connack.code == TOO_MUCH
            again = await Wire.connect(broker, "a")
            assert again.connack is not None
            assert again.connack.code == 0
            assert (reached(broker, "sessions"), reached(broker, "session_expiry_s")) == (1, 1)

    asyncio.run(check())


def test_subscriptions_are_bounded_in_number_and_in_bytes() -> None:
    async def check() -> None:
        async with serving({"limits": {"subscriptions": 2, "subscription_bytes": 300}}) as broker:
            wire = await Wire.connect(broker)
            assert await wire.subscribe("a" * 200) == 0
            assert await wire.subscribe("b" * 200) == TOO_MUCH
            assert await wire.subscribe("a" * 200, 1) == 1, "replacing one costs nothing"
            assert await wire.subscribe("c") == 0
            assert await wire.subscribe("d") == TOO_MUCH
            assert (reached(broker, "subscriptions"), reached(broker, "subscription_bytes")) == (1, 1)

    asyncio.run(check())


@pytest.mark.parametrize(
    ("limits", "bound"), [({"topic_bytes": 9}, "topic_bytes"), ({"topic_levels": 2}, "topic_levels")]
)
def test_long_and_deep_topics_are_refused_wherever_they_come(limits: dict[str, int], bound: str) -> None:
    async def check() -> None:
        async with serving({"limits": limits}) as broker:
            watch = await Wire.connect(broker)
            await watch.subscribe("#")
            wire = await Wire.connect(broker)
            long = "aaa/aaa/éé"  # 10 characters, 12 bytes, 3 levels
            wire.publish(long)
            wire.publish(long, qos=1)
            assert (await wire.expect(PubAck)).code == ReasonCode.TOPIC_NAME_INVALID
            wire.publish(long, retain=True)
            assert await wire.subscribe(long) == ReasonCode.TOPIC_FILTER_INVALID
            assert await wire.subscribe(f"$share/g/{long}") == ReasonCode.TOPIC_FILTER_INVALID
            heir = await Wire.connect(broker, "heir", will=Will(long, b""))
            assert heir.connack is not None
            assert heir.connack.code == ReasonCode.TOPIC_NAME_INVALID
            wire.publish("aaa/aaaaa")
            await wire.barrier()
            assert await watch.published() == [("aaa/aaaaa", b"x")]
            assert not broker.exchange.retained
            assert reached(broker, bound) == 6

    asyncio.run(check())


@pytest.mark.parametrize("character", ["\x01", "\n", "\x1b", "\x1f", "\x7f", "\x9f"])
def test_control_characters_in_topics_pass_unless_they_are_refused(character: str) -> None:
    async def check() -> None:
        topic, bound = f"ward/{character}7", "topic_control_characters"
        async with serving() as broker:
            wire = await Wire.connect(broker)
            assert await wire.subscribe(topic) == 0
            wire.publish(topic)
            assert await wire.published() == [(topic, b"x")]
        async with serving({"limits": {bound: False}}) as broker:
            watch, wire = await Wire.connect(broker), await Wire.connect(broker)
            await watch.subscribe("#")
            assert await wire.subscribe(topic) == ReasonCode.TOPIC_FILTER_INVALID
            wire.publish(topic, qos=1)
            assert (await wire.expect(PubAck)).code == ReasonCode.TOPIC_NAME_INVALID
            wire.publish(topic)
            heir = await Wire.connect(broker, "heir", will=Will(topic, b""))
            assert heir.connack is not None
            assert heir.connack.code == ReasonCode.TOPIC_NAME_INVALID
            wire.publish("ward/\xa0 ~7")
            await wire.barrier()
            assert await watch.published() == [("ward/\xa0 ~7", b"x")]
            assert reached(broker, bound) == 4

    asyncio.run(check())


def test_old_clients_are_acknowledged_what_is_refused_for_good() -> None:
    async def check() -> None:
        async with serving({"limits": {"topic_bytes": 3}}) as broker:
            wire = await Wire.connect(broker, "old", Version.V311)
            wire.publish("long", qos=1)
            await wire.expect(PubAck)
            assert reached(broker, "topic_bytes") == 1

    asyncio.run(check())


def test_user_properties_are_bounded() -> None:
    async def check() -> None:
        async with serving({"limits": {"user_properties": 2}}) as broker:
            three = tuple(("k", "v") for _ in range(3))
            wire = await Wire.connect(broker)
            await wire.subscribe("t")
            wire.publish("t", b"two", 1, properties={"user": three[:2]})
            wire.publish("t", b"three", 1, properties={"user": three})
            wire.publish("t", b"three", 0, properties={"user": three})
            acks = [packet for packet in await wire.barrier() if not isinstance(packet, PubRec)]
            assert [packet.code for packet in acks if isinstance(packet, PubAck)] == [0, TOO_MUCH]
            assert [packet.payload for packet in acks if isinstance(packet, Publish)] == [b"two"]
            late = await Wire.connect(broker, "late", properties={"user": three})
            assert late.connack is not None
            assert late.connack.code == TOO_MUCH
            assert reached(broker, "user_properties") == 3

    asyncio.run(check())


def test_the_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    pace = Pace(10, 3, 100.0)
    assert [pace.take_token(100.0) for _ in range(4)] == [0, 0, 0, pytest.approx(0.1)]
    assert [pace.take_token(100.15) for _ in range(2)] == [0, pytest.approx(0.05)]
    assert [pace.take_token(500.0) for _ in range(3)] == [0, 0, 0], "no more than the burst is saved up"
    assert pace.take_token(500.0) > 0
    assert pace.take_token(499.0) > 0, "a clock that goes backwards gives nothing"


@ends(Wait.PACE)
def test_a_client_above_its_rate_is_read_slowly_and_loses_nothing() -> None:
    async def check() -> None:
        async with serving({"limits": {"publish_rate": 100, "publish_burst": 10}}) as broker:
            watch = await Wire.connect(broker)
            await watch.subscribe("t")
            fast, other = await Wire.connect(broker, "fast"), await Wire.connect(broker)
            began = time.monotonic()
            for number in range(30):
                fast.publish("t", b"%d" % number, number % 2)
            await other.barrier()
            assert time.monotonic() - began < 0.15, "others do not wait"
            await fast.barrier()
            assert time.monotonic() - began > 0.15
            assert [payload for _, payload in await watch.published()] == [b"%d" % number for number in range(30)]
            assert reached(broker, "publish_rate") > 0

    asyncio.run(check())


def test_starting_anew_does_not_fill_the_bucket() -> None:
    async def check() -> None:
        async with serving({"limits": {"publish_rate": 0.01, "publish_burst": 5, "shutdown_s": 1}}) as broker:
            watch = await Wire.connect(broker)
            await watch.subscribe("t")
            for _ in range(3):
                wire = await Wire.connect(broker, "again", properties={"session_expiry_s": 60})
                for _ in range(5):
                    wire.publish("t")
                await wire.writer.drain()
                await until(lambda: broker.lifecycle.traffic.publish_received % 5 == 0)
                await watch.barrier()
            assert broker.operation.observe().published == 5

    asyncio.run(check())


def test_a_full_window_and_a_full_queue_are_counted_apart() -> None:
    async def check() -> None:
        limits = {"in_flight": 2, "queue_messages": 3, "queue_bytes": 2_000}
        listeners = {"default": {"bind": "127.0.0.1:0", "when_full": "drop_oldest"}}
        async with serving({"limits": limits, "listeners": listeners}) as broker:
            sub, pub = await Wire.connect(broker, "sub"), await Wire.connect(broker, "pub")
            await sub.subscribe("t", 1)
            for number in range(7):
                pub.publish("t", b"%d" % number, 1)
            await pub.barrier()
            assert [packet.payload for packet in await sub.barrier() if isinstance(packet, Publish)] == [b"0", b"1"]
            figures = broker.operation.observe()
            assert (figures.in_flight, figures.queued_messages) == (2, 3)
            assert reached(broker, "in_flight") == 1
            assert (reached(broker, "queue_messages"), reached(broker, "queue_bytes")) == (2, 0)
            pub.publish("t", b"x" * 1_500, 1)
            pub.publish("t", b"x" * 1_990, 1)
            await pub.barrier()
            assert reached(broker, "queue_bytes") >= 1
            sub.send(PubAck(1), PubAck(2))
            left = [payload[:1] for _ in range(3) for _, payload in await sub.published()]
            assert left == [b"5", b"6", b"x"], "the newest that fit are kept"

    asyncio.run(check())


def test_retained_messages_are_bounded_in_number_and_bytes_with_their_properties() -> None:
    async def check() -> None:
        limits = {"retained_messages": 2, "retained_bytes": 3_000}
        async with serving({"limits": limits, "sys_interval": 1}) as broker:
            wire = await Wire.connect(broker)
            wire.publish("a", b"1", retain=True)
            wire.publish("big", b"2", retain=True, properties={"content_type": "c" * 3_000})
            wire.publish("b", b"3", retain=True)
            wire.publish("c", b"4", retain=True)
            wire.publish("a", b"5", retain=True)
            await wire.barrier()
            late = await Wire.connect(broker)
            await late.subscribe("#")
            assert sorted(await late.published()) == [("a", b"5"), ("c", b"4")]
            assert (reached(broker, "retained_messages"), reached(broker, "retained_bytes")) == (2, 1)

    asyncio.run(check())


class FullTransport(RecordingTransport):
    """Takes nothing, and says when its buffer is full, as asyncio's do."""

    connection: MqttConnection

    def write(self, data: Any) -> None:
        was, self.buffered = self.buffered, self.buffered + len(data)
        super().write(b"\0")
        if was <= (self.high or 0) < self.buffered:
            self.connection.pause_writing()


def test_many_that_send_in_one_turn_do_not_fill_memory_of_one_that_does_not_read() -> None:
    async def check() -> None:
        async with serving({"limits": {"write_bytes": 65_536}}) as broker:
            fakes = []
            for name in ("deaf", "pub"):
                connection = MqttConnection(broker.lifecycle, broker._flusher, "default", False, False)
                transport = FullTransport()
                transport.connection = connection
                connection.connection_made(transport)
                connection.data_received(encode(Connect(name), Version.V5))
                await until(lambda sent=transport: sent.writes)
                fakes.append((connection, transport))
            (deaf, full), (pub, _) = fakes
            deaf.data_received(b"\x82\x07\x00\x01\x00\x00\x01t\x00")
            await until(lambda: len(full.writes) == 2)
            read = encode(Publish("t", b"x" * 1_000), Version.V5) * 256
            for _ in range(40):  # 10 MB before the event loop turns
                pub.data_received(read)
            await asyncio.sleep(0)
            assert full.buffered < 2 << 20
            for connection, _ in fakes:
                connection.connection_lost(None)

    asyncio.run(check())


def test_who_takes_nothing_is_cut_off_and_who_takes_a_little_is_not() -> None:
    async def check() -> None:
        async with serving({"limits": {"stalled_s": 0.02}}) as broker:
            connection = MqttConnection(broker.lifecycle, broker._flusher, "default", False, False)
            transport = RecordingTransport()
            connection.connection_made(transport)
            connection.data_received(encode(Connect("slow"), Version.V5))
            await until(lambda: transport.writes)
            transport.buffered = 1_000_000
            connection.pause_writing()
            until_s = time.monotonic() + 0.1
            while time.monotonic() < until_s:
                await asyncio.sleep(0.005)
                transport.buffered -= 1
            assert transport.ended == ""
            await until(lambda: transport.ended == "aborted")
            assert (reached(broker, "write_bytes"), reached(broker, "stalled_s")) == (1, 1)
            connection.connection_lost(None)

    asyncio.run(check())


def test_the_end_waits_no_longer_than_it_may() -> None:
    async def check() -> None:
        async with serving({"limits": {"shutdown_s": 0.2}}) as broker:
            connection = MqttConnection(broker.lifecycle, broker._flusher, "default", False, False)
            transport = RecordingTransport()  # its end never comes
            connection.connection_made(transport)
            connection.data_received(encode(Connect("deaf"), Version.V5))
            await until(lambda: transport.writes)
            began = time.monotonic()
        assert time.monotonic() - began < 1
        assert transport.ended
        assert broker.lifecycle.reached.counts["shutdown_s"] == 1

    asyncio.run(check())


@pytest.mark.long
def test_many_retained_messages_for_one_that_does_not_read_fill_no_memory() -> None:
    async def check() -> None:
        count, size = 400, 65_536
        async with serving({"limits": {"write_bytes": 65_536}}) as broker:
            pub = await Wire.connect(broker, "pub")
            for number in range(count):
                pub.publish(f"r/{number}", b"x" * size, retain=True)
                await pub.writer.drain()
            await pub.barrier()
            deaf = await Wire.connect(broker, "deaf")
            for number in range(20):  # 500 MB, were it all written at once
                deaf.raw(b"\x82\x09" + (number + 1).to_bytes(2, "big") + b"\x00\x00\x03r/#\x00")
            await until(lambda: "deaf" in broker.lifecycle.clients)
            connection = broker.lifecycle.clients["deaf"].connection
            await until(lambda: connection.is_held)
            other = await Wire.connect(broker, "other")
            await other.subscribe("live")
            pub.publish("live", b"still served")
            await pub.barrier()
            assert await other.published() == [("live", b"still served")]
            assert connection._transport.get_write_buffer_size() < 4 << 20
            deaf.send(PingReq())
            topics: list[str] = []
            while len(topics) < 20 * count:
                packet = await deaf.next()
                assert packet is not None
                topics += [packet.topic] if isinstance(packet, Publish) else []
            assert len(set(topics)) == count, "whoever does read misses nothing"

    asyncio.run(check())
