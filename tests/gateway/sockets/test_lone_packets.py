"""Packets that are a read of their own: the short way for them gives the answers, the counters and the state of the
general one.

Each stream of bytes is fed in every cut at up to two places and byte by byte, to a connection with the short way and to
one without. A read in the midst of a payload may look like a packet, and a packet may come malformed, out of place,
for another flow or behind the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import pytest
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import ConnectionClosed

from gateway.base import turns
from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.delivery import Connection
from gateway.mqtt5.packets import ConnAck, Connect, Disconnect, PingResp, Publish, Subscribe, Subscription, Version
from gateway.mqtt5.properties import Properties
from gateway.sockets.connection import MqttConnection
from tests.gateway.harness import Wire, serving
from tests.gateway.sockets.test_connection import RecordingTransport
from tests.waits import until

PING = b"\xc0\0"
IN_FLIGHT = 2  # of three messages; the third goes when one of them is acknowledged


@pytest.fixture(autouse=True)
def _all_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test here takes one turn of the event loop: no read of it is left to a later one."""
    monkeypatch.setattr(turns, "READS_S", 600.0)


def ack(packet_id: int) -> bytes:
    return b"\x40\2" + packet_id.to_bytes(2)


def publish(packet_id: int = 7, topic: str = "t", **flags: Any) -> bytes:
    """A PUBLISH of QoS 1 below MQTT 5."""
    return encode(Publish(topic, b"x", 1, packet_id=packet_id, **flags), Version.V311)


def publications(version: Version) -> dict[str, bytes]:
    """Streams of a client that receives its own publications, below MQTT 5 and in MQTT 5."""
    if version is Version.V5:
        plain = encode(Publish("t", b"x", 1, packet_id=7), version)
        expiring = Properties(message_expiry_s=9)
        return {
            "plain": plain + PING,
            "twice": plain + encode(Publish("t", b"y", 1, packet_id=8), version),
            "with a property": encode(Publish("t", b"x", 1, packet_id=7, properties=expiring), version) + PING,
            "without the length of properties": b"\x32\5\0\1t\0\7" + PING,
            "with a topic alias nobody gave": b"\x32\x08\0\0\0\7\3\x23\0\1" + PING,
        }
    return {
        "plain": publish() + PING,
        "twice": publish() + publish(8),
        "after an acknowledgement": ack(1) + publish(),
        "an empty payload": b"\x32\5\0\1t\0\7" + PING,
        "a topic nobody reads": publish(topic="u") + PING,
        "a topic of the broker": publish(topic="$SYS/t"),
        "a filter as topic": b"\x32\6\0\1#\0\7x" + PING,
        "no topic": b"\x32\7\0\0\0\7xyz" + PING,
        "identifier 0": b"\x32\6\0\1t\0\0x" + PING,
        "a topic beyond the end": b"\x32\6\0\x09t\0\7x" + PING,
        "an identifier beyond the end": publish(topic="long") + b"\x32\7\0\4long\0" + PING,
        "a length in two bytes": b"\x32\x86\0\0\1t\0\7x" + PING,
        "repeated": publish(dup=True) + PING,
        "retained": publish(topic="u", retain=True) + PING,
        "QoS 0": encode(Publish("t", b"x"), Version.V311) + publish(),
        "QoS 2 with the same identifier before": encode(Publish("u", b"x", 2, packet_id=7), Version.V311) + publish(),
        "QoS 3": b"\x36\6\0\1t\0\7x" + PING,
        "a payload that looks like a publication": encode(Publish("t", publish(), 1, packet_id=7), Version.V311) + PING,
        "behind the end": b"\xe0\0" + publish(),
    }


def looks_like_packets(version: Version) -> bytes:
    return encode(Publish("s", PING + ack(1) + PING), version) + PING


STREAMS = {
    "pings": PING * 3,
    "acknowledgements": ack(1) + ack(2) + ack(3),
    "both": PING + ack(2) + PING + ack(1),
    "one twice": ack(1) + ack(1) + PING,
    "of no message": ack(9) + PING,
    "of a message that waits": ack(3) + PING,
    "identifier 0": ack(0) + PING,
    "another step of the flow": b"\x50\2\0\1" + ack(1) + PING,
    "with a reason": b"\x40\3\0\1\0" + PING,
    "with a reason of failure": b"\x40\3\0\1\x80" + PING,
    "with properties": b"\x40\4\0\1\0\0" + PING,
    "too short": b"\x40\1\1" + PING,
    "a length in two bytes": b"\x40\x82\0\0\1" + PING,
    "a ping with a length in two bytes": b"\xc0\x80\0" + PING,
    "a ping with a body": b"\xc0\1\0" + PING,
    "a ping with flags": b"\xc1\0" + PING,
    "an acknowledgement with flags": b"\x42\2\0\1" + PING,
    "an answer that no client sends": b"\xd0\0" + PING,
    "behind the end": b"\xe0\0" + PING + ack(1),
}


class Outcome(NamedTuple):
    """What a client and an operator see of the reads; `state`: of the session."""

    answers: bytes
    is_closed: bool
    state: tuple[Any, ...]
    counted: tuple[int, ...]
    was_heard: bool
    seen: int


def cuts(stream: bytes) -> Iterator[tuple[bytes, ...]]:
    """Returns the stream whole, in two and three reads, and in reads of a byte."""
    places = range(1, len(stream))
    for inner in ((), *combinations(places, 1), *combinations(places, 2), tuple(places)):
        ends = (0, *inner, len(stream))
        yield tuple(stream[begin:end] for begin, end in pairwise(ends))


class Transport(RecordingTransport):
    def can_write_eof(self) -> bool:
        return False


class General(MqttConnection):
    """A connection without the short way."""

    def _has_taken(self, data: bytes) -> bool:
        return False


async def reader(broker: Any, kind: type[MqttConnection], version: Version) -> tuple[MqttConnection, Transport]:
    """Returns a connection with two messages in flight, and a third that waits for one of them."""
    connection, transport = kind(broker.lifecycle, broker._flusher, "default", False, False), Transport()
    connection.connection_made(transport)
    asked = Properties(receive_maximum=IN_FLIGHT) if version is Version.V5 else Properties()
    connection.data_received(encode(Connect("fake", version, properties=asked), version))
    subscribed = encode(Subscribe(1, (Subscription("t", 1),)), version)
    connection.data_received(subscribed)
    for number in range(3):
        connection.data_received(encode(Publish("t", b"%d" % number, 1, packet_id=number + 1), version))
    session = broker.lifecycle.clients["fake"].session
    await until(lambda: session.outbound.in_flight == IN_FLIGHT and len(session.waiting) == 1)
    connection.flush()
    transport.writes.clear()
    return connection, transport


async def outcome(broker: Any, kind: type[MqttConnection], version: Version, reads: tuple[bytes, ...]) -> Outcome:
    connection, transport = await reader(broker, kind, version)
    client, traffic = broker.lifecycle.clients["fake"], broker.lifecycle.traffic
    session, seen = client.session, list[Any]()
    session._last_received = client.seen_at = 0.0
    broker.exchange.watchers[:] = [seen.append]
    figures = ("packets_received", "packets_sent", "bytes_received", "bytes_sent")
    figures += ("publish_received", "publish_bytes_received")
    before = [getattr(traffic, figure) for figure in figures]
    for read in reads:
        connection.data_received(read)
    was_closed = connection.closed
    connection.flush()
    outbound = session.outbound
    state = session.state, outbound.quota, sorted(outbound.unacknowledged), sorted(outbound.released)
    state += (sorted(session.inbound.accepting), sorted(session.inbound.awaiting_pubrel))  # type: ignore[assignment]
    counted = [getattr(traffic, figure) - was for figure, was in zip(figures, before, strict=True)]
    found = Outcome(
        b"".join(transport.writes),
        was_closed,
        (*state, [(one.message.topic, one.message.payload, one.qos) for one in session.waiting], session.held_bytes),
        tuple(counted),
        session._last_received > 0,
        len(seen),
    )
    connection.connection_lost(None)
    return found


@pytest.mark.long
@pytest.mark.parametrize("version", [Version.V5, Version.V311], ids=["5", "3.1.1"])
@pytest.mark.parametrize("name", [*STREAMS, "a payload that looks like packets"])
def test_however_a_stream_is_cut_the_short_way_and_the_general_one_agree(name: str, version: Version) -> None:
    agree(STREAMS.get(name) or looks_like_packets(version), version, cuts_agree=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "version"), [(name, version) for version in (Version.V5, Version.V311) for name in publications(version)]
)
def test_however_publications_are_cut_the_short_way_and_the_general_one_agree(name: str, version: Version) -> None:
    # Some cuts differ, in both ways: an identifier is free again once its publication was acknowledged.
    agree(publications(version)[name], version, cuts_agree=False)


def agree(stream: bytes, version: Version, cuts_agree: bool) -> None:
    """Feeds a stream in every cut to both ways: equal answers, counters and state; `cuts_agree`: in all cuts alike."""

    async def check() -> None:
        async with serving({"limits": {"in_flight": IN_FLIGHT}}) as broker:
            whole = await outcome(broker, General, version, (stream,))
            for reads in cuts(stream):
                short = await outcome(broker, MqttConnection, version, reads)
                assert short == await outcome(broker, General, version, reads), reads
                assert short[:3] == whole[:3] or not cuts_agree, reads

    asyncio.run(check())


def test_a_connection_that_was_taken_over_acknowledges_nothing_of_its_successor() -> None:
    async def check() -> None:
        async with serving({"limits": {"in_flight": IN_FLIGHT}}) as broker:
            former, before = await reader(broker, MqttConnection, Version.V5)
            successor, transport = await reader(broker, MqttConnection, Version.V5)
            session = broker.lifecycle.clients["fake"].session
            session._last_received = 0.0
            before.writes.clear()
            for read in (ack(1), PING, encode(Disconnect(), Version.V5)):
                former.data_received(read)
            assert sorted(session.outbound.unacknowledged) == [1, 2]
            assert session._last_received == 0.0
            assert before.writes == transport.writes == []
            for connection in (former, successor):
                connection.connection_lost(None)

    asyncio.run(check())


def test_a_ping_between_connect_and_its_acceptance_is_answered_behind_it() -> None:
    """The acceptance waits for a plugin, as a slow password does."""

    async def check() -> None:
        async with serving() as broker:
            lifecycle, decision = broker.lifecycle, asyncio.get_running_loop().create_future()
            connect = lifecycle.connecting
            connection = MqttConnection(lifecycle, broker._flusher, "default", False, False)
            transport = Transport()
            connection.connection_made(transport)

            async def later(*of_connect: Any) -> None:
                await decision
                assert connect(*of_connect) is None

            lifecycle.connecting = later
            connection.data_received(encode(Connect("fake", Version.V5), Version.V5))
            for read in (PING, ack(1), PING):
                connection.data_received(read)
            assert transport.writes == []
            decision.set_result(None)
            await until(lambda: b"".join(transport.writes).endswith(b"\xd0\0\xd0\0"))
            packets = Decoder(Version.V5, role="client").feed(b"".join(transport.writes))
            assert [type(packet) for packet in packets] == [ConnAck, PingResp, PingResp]
            connection.connection_lost(None)

    asyncio.run(check())


def test_pings_in_frames_of_a_websocket_are_answered_however_they_are_cut() -> None:
    async def check() -> None:
        async with serving({"listeners": {"ws": {"bind": "127.0.0.1:0", "type": "ws"}}}) as broker:
            uri = f"ws://127.0.0.1:{broker.port('ws')}"
            async with websocket_connect(uri, subprotocols=["mqtt"]) as socket:  # type: ignore[list-item]
                await socket.send(encode(Connect("ws"), Version.V5))
                await socket.recv()
                for reads in cuts(PING + ack(9) + PING):
                    for read in reads:
                        await socket.send(read)
                    answer = b""
                    while len(answer) < 4:
                        message = await socket.recv()
                        assert isinstance(message, bytes)
                        answer += message
                    assert answer == b"\xd0\0\xd0\0", reads
                await socket.send(encode(Disconnect(), Version.V5) + PING)
                with pytest.raises(ConnectionClosed):
                    await socket.recv()

    asyncio.run(check())


@pytest.mark.parametrize("split", [1, 20, 46, 47, 60], ids=str)
def test_pings_behind_the_header_of_a_proxy_are_answered_however_they_are_cut(split: int) -> None:
    header = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 1883\r\n"
    listener = {"bind": "127.0.0.1:0", "proxy": ["127.0.0.1"]}

    async def check() -> None:
        async with serving({"listeners": {"default": listener}}) as broker:
            wire = await Wire.open(broker)
            stream = header + encode(Connect("fake"), Version.V5) + PING
            for read in (stream[:split], stream[split:], PING, ack(9), PING):
                wire.raw(read)
                await wire.writer.drain()
                await asyncio.sleep(0)
            await wire.expect(ConnAck)
            for _ in range(3):
                await wire.expect(PingResp)

    asyncio.run(check())


def test_the_short_way_takes_no_publication_that_needs_more_than_routes() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, _ = await reader(broker, MqttConnection, Version.V5)
            exchange, client = broker.exchange, broker.lifecycle.clients["fake"]
            inbound, host, nothing = client.session.inbound, exchange.host, asyncio.get_running_loop().create_future()

            def takes(topic: str = "u") -> bool:
                return exchange.took_publish(client, topic, b"x", exchange.now())

            odd: list[tuple[Any, str, Any]] = [
                (client, "pace", object()),
                (client, "undecided", nothing),
                (client, "is_behind", True),
                (client, "peer", "member"),
                (client, "bridge", object()),
                (client, "acks", [object()]),
                (host, "sees_packets_received", True),
                (host, "is_absent", False),
                (exchange, "store", object()),
                (exchange, "overlay", object()),
                (exchange, "tracing", object()),
                (exchange.holding, "behind", {client: object()}),
                (inbound, "accepting", {7: object()}),
                (inbound, "awaiting_pubrel", {7: ""}),
                (client.session, "state", Connection.CLOSING),
            ]
            for owner, name, value in odd:
                usual = getattr(owner, name)
                assert takes(), name
                setattr(owner, name, value)
                assert not takes(), name
                setattr(owner, name, usual)
            assert takes()
            assert not takes("$SYS/u")
            connection.connection_lost(None)

    asyncio.run(check())


def test_a_fault_of_the_broker_at_a_lone_publication_ends_its_client_alone() -> None:
    async def check() -> None:
        async with serving() as broker:
            connection, transport = await reader(broker, MqttConnection, Version.V5)

            def fails(*of_message: Any) -> bool:
                raise RuntimeError("a fault")

            broker.exchange.delivery.forward = fails
            connection.data_received(encode(Publish("t", b"x", 1, packet_id=7), Version.V5))
            connection.flush()
            await until(lambda: connection.closed)
            assert b"".join(transport.writes) == b"\xe0\1\x80"
            assert broker.lifecycle.traffic.defects.count == 1
            connection.connection_lost(None)

    asyncio.run(check())
