"""Clients that mean harm: whatever they send, the broker answers others in time and holds little for them.

Loopback only; every test has a bound in seconds that is generous for a busy machine and small for a defect.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from bridge.base.topics import MEMO_TOPICS
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving
from tests.waits import until

WITHIN_S = 10.0
V5, V311 = Version.V5, Version.V311
USER = tuple((f"k{n}", f"v{n}") for n in range(5))

# One of each packet that a client may send, with the fields that parsers stumble over.
CORPUS: tuple[Packet, ...] = (
    Connect("c", V5, will=Will("w", b"x", 1, True, Properties(will_delay_s=1, user=USER)), username="u", password=b"p"),
    Publish("t", b"payload", 1, packet_id=1, properties=Properties(topic_alias=1, message_expiry_s=5, user=USER)),
    Publish("t/" * 20, b"", 2, packet_id=2, retain=True),
    Subscribe(3, (Subscription("a/+/#", 2), Subscription("$share/g/a", 1)), Properties(subscription_ids=(7,))),
    Unsubscribe(4, ("a/+/#", "$share/g/a")),
    PubAck(1),
    PubRec(2),
    PubRel(2),
    PubComp(2),
    PingReq(),
    Auth(ReasonCode.RE_AUTHENTICATE, Properties(authentication_method="m", authentication_data=b"d")),
    Disconnect(ReasonCode.DISCONNECT_WITH_WILL, Properties(session_expiry_s=0)),
)


def bad_bytes(seed: int, count: int) -> Iterator[tuple[bool, bytes]]:
    """(is a CONNECT sent first, bytes): packets of the corpus with bytes changed, cut, doubled or moved."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(b"".join(encode(rng.choice(CORPUS), V5) for _ in range(rng.randint(1, 4))))
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(data))
            match rng.randrange(5):
                case 0:
                    data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                case 1:
                    del data[place : place + rng.randint(1, 8)]
                case 2:
                    data[place:place] = data[place : place + rng.randint(1, 16)]
                case 3:
                    data[place:place] = rng.randbytes(rng.randint(1, 8))
                case 4:
                    data[place] ^= 1 << rng.randrange(8)
            if not data:
                data += b"\x10"
        yield rng.random() < 0.7, bytes(data)


async def is_served(broker: Any) -> None:
    """A client that behaves gets its answers."""
    wire = await Wire.connect(broker, "witness")
    assert wire.connack is not None
    assert wire.connack.code == 0
    assert await wire.subscribe("witness", 1) == 1
    wire.publish("witness", b"here", 1)
    assert ("witness", b"here") in await wire.published()
    wire.cut()


def small_buffers(broker: Any, wire: Wire, client_id: str) -> Any:
    """Keep the kernel from hiding megabytes that a client does not read. The broker's connection."""
    connection = broker.lifecycle.clients[client_id].connection
    for transport in (wire.writer.transport, connection._transport):
        sock = transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 65_536)
    return connection


def within(check: Callable[[], Awaitable[None]], seconds: float = WITHIN_S) -> None:
    async def timed() -> None:
        async with asyncio.timeout(seconds):
            await check()

    asyncio.run(timed())


@pytest.mark.parametrize("seed", range(4))
def test_damaged_packets_end_their_own_connection_at_most(seed: int) -> None:
    async def check() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with serving({"limits": {"connect_timeout_s": 0.3}, "sys_interval": 0}) as broker:
            for is_connected, data in bad_bytes(seed, 80):
                wire = await Wire.open(broker)
                wire.raw((encode(Connect("fuzz"), V5) if is_connected else b"") + data)
                wire.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(wire.reader.read(), 5)
                wire.cut()
            await until(lambda: not broker.lifecycle.connections)
            await is_served(broker)
            assert not faults, f"seed {seed}: {faults}"

    within(check, 30)


def test_half_open_floods_do_not_keep_others_out() -> None:
    async def check() -> None:
        async with serving({"limits": {"half_open": 50, "connections": 100, "connect_timeout_s": 30}}) as broker:
            flood = [await Wire.open(broker) for _ in range(200)]
            for number, wire in enumerate(flood):  # some say nothing, some a byte, some nearly all
                with contextlib.suppress(ConnectionError):
                    wire.raw(encode(Connect("flood"), V5)[: number % 18])
            await is_served(broker)
            assert len(broker.lifecycle.connections) <= 51
            assert broker.lifecycle.reached.counts["half_open"] >= 149
            assert broker.lifecycle.reached.counts["connections"] == 0

    within(check)


def test_connect_floods_leave_nothing_behind() -> None:
    async def check() -> None:
        async with serving() as broker:
            for _ in range(150):  # each takes over the one before it
                wire = await Wire.open(broker)
                wire.send(Connect("same"))
            for number in range(150):
                wire = await Wire.open(broker)
                wire.send(Connect(f"other-{number}"))
                wire.writer.close()
            await is_served(broker)
            await until(lambda: len(broker.lifecycle.connections) <= 1)
            assert set(broker.lifecycle.clients) <= {"same"}

    within(check)


def test_repeated_connects_on_one_connection_end_it() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.open(broker)
            wire.send(*[Connect("c")] * 1_000)
            packets = await wire.closed()
            assert isinstance(packets[0], ConnAck)
            assert isinstance(packets[-1], Disconnect)
            assert packets[-1].code == ReasonCode.PROTOCOL_ERROR
            assert len(packets) == 2

    within(check)


@pytest.mark.parametrize("pattern", ["f/{}", "+/{}/#", "$share/g{}/a"])
def test_ten_thousand_filters_in_one_packet_are_answered_one_by_one(pattern: str) -> None:
    async def check() -> None:
        async with serving({"limits": {"subscriptions": 1_000}}) as broker:
            wire = await Wire.connect(broker, "greedy")
            filters = tuple(Subscription(pattern.format(n)) for n in range(10_000))
            began = time.monotonic()
            wire.send(Subscribe(1, filters))
            codes = (await wire.expect(SubAck)).codes
            assert codes == (0,) * 1_000 + (ReasonCode.QUOTA_EXCEEDED,) * 9_000
            assert time.monotonic() - began < 3
            assert broker.operation.observe().subscriptions == 1_000
            wire.cut()
            await until(lambda: not broker.exchange.delivery.router.filters())
            await is_served(broker)

    within(check)


@pytest.mark.parametrize("qos", [0, 1])
def test_property_bombs_are_refused_and_not_kept(qos: int) -> None:
    async def check() -> None:
        bomb = tuple(("", "") for _ in range(100_000))
        async with serving() as broker:
            victim = await Wire.connect(broker, "victim", properties={"session_expiry_s": 60})
            await victim.subscribe("#", 1)
            wire = await Wire.connect(broker, "bomber")
            wire.publish("t", b"", qos, retain=True, properties={"user": bomb})
            answers = [packet for packet in await wire.barrier() if isinstance(packet, PubAck)]
            assert [answer.code for answer in answers] == [ReasonCode.QUOTA_EXCEEDED] * qos
            assert await victim.published() == []
            assert not broker.exchange.retained
            await is_served(broker)

    within(check)


def test_a_property_bomb_in_connect_is_refused_by_its_size() -> None:
    async def check() -> None:
        async with serving() as broker:
            bomb = tuple(("", "") for _ in range(100_000))
            wire = await Wire.open(broker)
            wire.send(Connect("bomber", properties=Properties(user=bomb)))
            assert await wire.closed() == []
            assert broker.lifecycle.reached.counts["connect_bytes"] == 1
            await is_served(broker)

    within(check)


@pytest.mark.parametrize("version", [V5, V311])
def test_who_never_reads_slows_nobody_and_costs_a_bounded_buffer(version: Version) -> None:
    async def check() -> None:
        limits = {"shutdown_s": 1, "write_bytes": 65_536, "queue_messages": 50}
        listeners = {"default": {"bind": "127.0.0.1:0", "when_full": "drop_oldest"}}
        async with serving({"limits": limits, "listeners": listeners}) as broker:
            deaf, good = await Wire.connect(broker, "deaf", version), await Wire.connect(broker, "good")
            await deaf.subscribe("t", 1)
            await good.subscribe("t")
            pub = await Wire.connect(broker, "pub")
            connection = small_buffers(broker, deaf, "deaf")
            worst = heard = 0
            for burst in range(20):  # 20 MB
                for _ in range(16):
                    pub.publish("t", b"x" * 65_536, burst % 2)
                await pub.barrier()
                heard += len(await good.published())
                worst = max(worst, connection._transport.get_write_buffer_size())
            assert heard == 20 * 16
            assert worst < 4 << 20
            session = broker.lifecycle.clients["deaf"].session
            assert len(session.waiting) <= 50
            assert session.held_bytes <= broker.limits.queue_bytes
            await is_served(broker)

    within(check, 20)


def test_who_never_reads_its_own_answers_is_not_read_any_more() -> None:
    async def check() -> None:
        async with serving({"limits": {"shutdown_s": 1, "write_bytes": 65_536}}) as broker:
            deaf = await Wire.connect(broker, "deaf")
            connection = small_buffers(broker, deaf, "deaf")
            sent, worst = 0, 0
            with contextlib.suppress(TimeoutError):
                for _ in range(400):
                    deaf.raw(b"\xc0\x00" * 65_536)
                    sent += 1
                    await asyncio.wait_for(deaf.writer.drain(), 0.3)
                    worst = max(worst, connection._transport.get_write_buffer_size())
            assert sent < 400, "the sender had to stop"
            assert worst < 1 << 20
            await is_served(broker)

    within(check)


def test_bytes_that_trickle_hold_up_nobody() -> None:
    async def check() -> None:
        async with serving({"limits": {"connect_timeout_s": 0.3}}) as broker:
            slow = [await Wire.open(broker) for _ in range(50)]
            connect = encode(Connect("slow"), V5)
            for byte in connect[:-1]:
                for wire in slow:
                    wire.raw(bytes([byte]))
                await asyncio.sleep(0)
            await is_served(broker)
            assert [await wire.closed() for wire in slow] == [[]] * 50

    within(check)


def test_topics_that_are_never_the_same_do_not_fill_memory() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub, pub = await Wire.connect(broker), await Wire.connect(broker)
            await sub.subscribe("nothing/#")
            for start in range(0, MEMO_TOPICS + 6_000, 3_000):
                for number in range(start, start + 3_000):
                    pub.publish(f"new/{number}")
                await pub.barrier()
            assert len(broker.exchange.delivery.router._plans) <= MEMO_TOPICS
            await is_served(broker)

    within(check)
