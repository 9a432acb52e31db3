"""Sessions of clients that come, go, come back and are taken over, and who is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bridge.traces import EntityConnected
from gateway.broker.exchange import Exchange
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving
from tests.waits import until

V3, V5 = Version.V311, Version.V5


def test_a_session_keeps_what_comes_while_the_client_is_away() -> None:
    async def check() -> None:
        async with serving() as broker:
            expiry = {"session_expiry_s": 100}
            sub = await Wire.connect(broker, "sub", properties=expiry)
            await sub.subscribe("t", 1)
            sub.cut()
            await until(lambda: dict(broker.clients()) == {"sub": False})
            pub = await Wire.connect(broker, "pub")
            for number in range(3):
                pub.publish("t", b"%d" % number, 1)
            pub.publish("t", b"lost", 0)
            await pub.barrier()
            sub = await Wire.connect(broker, "sub", clean_start=False, properties=expiry)
            assert sub.connack is not None
            assert sub.connack.session_present
            assert [payload for _, payload in await sub.published()] == [b"0", b"1", b"2"]
            again = await Wire.connect(broker, "sub", clean_start=True)
            assert again.connack is not None
            assert not again.connack.session_present
            pub.publish("t", b"4", 1)
            await pub.barrier()
            assert await again.published() == []

    asyncio.run(check())


def test_a_session_expires_and_its_subscriptions_go_with_it() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub = await Wire.connect(broker, "sub", properties={"session_expiry_s": 100})
            await sub.subscribe("t", 1)
            sub.cut()
            await until(lambda: dict(broker.clients()) == {"sub": False})
            broker.do_due_work(broker.now() + 99)
            assert broker.local.local_filters() == ["t"]
            broker.do_due_work(broker.now() + 101)
            assert broker.local.local_filters() == []
            assert list(broker.clients()) == []

    asyncio.run(check())


def test_tracing_hears_whether_a_client_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with serving() as broker:
            heard: list[Any] = []
            monkeypatch.setattr(Exchange, "tell_entity_event", lambda _, event: heard.append(event))
            named = await Wire.connect(broker, "pump")
            drawn = await Wire.connect(broker, "", V5)
            assert [each.is_named for each in heard if isinstance(each, EntityConnected)] == [True, False]
            for wire in (named, drawn):
                wire.cut()

    asyncio.run(check())


def test_the_server_bounds_session_expiry_and_says_so() -> None:
    async def check() -> None:
        async with serving({"session_expiry_interval": 60}) as broker:
            wire = await Wire.connect(broker, "c", properties={"session_expiry_s": 4_000_000})
            assert wire.connack is not None
            assert wire.connack.properties.session_expiry_s == 60

    asyncio.run(check())


def test_a_takeover_tells_the_older_connection_and_keeps_the_session() -> None:
    async def check() -> None:
        async with serving() as broker:
            expiry = {"session_expiry_s": 9}
            old = await Wire.connect(broker, "c", properties=expiry)
            await old.subscribe("t", 1)
            new = await Wire.connect(broker, "c", clean_start=False, properties=expiry)
            (bye,) = await old.closed()
            assert isinstance(bye, Disconnect)
            assert bye.code == ReasonCode.SESSION_TAKEN_OVER
            assert new.connack is not None
            assert new.connack.session_present
            new.publish("t", b"mine")
            assert await new.published() == [("t", b"mine")]

    asyncio.run(check())


def test_an_empty_client_id_gets_one_assigned() -> None:
    async def check() -> None:
        async with serving() as broker:
            first, second = await Wire.connect(broker), await Wire.connect(broker)
            names = {wire.connack.properties.assigned_client_id for wire in (first, second) if wire.connack}
            assert len(names) == 2
            assert None not in names
            old = await Wire.connect(broker, "", V3)
            assert old.connack is not None
            assert old.connack.code == 0

    asyncio.run(check())


@pytest.mark.parametrize(
    ("send", "code"),
    [
        (lambda wire: wire.raw(b"\x30\x06\x00\x03a/\xff\x00x"), ReasonCode.MALFORMED_PACKET),
        (lambda wire: wire.publish("t", b"x" * 2_000), ReasonCode.PACKET_TOO_LARGE),
        (lambda wire: wire.send(Connect("again")), ReasonCode.PROTOCOL_ERROR),
        (lambda wire: wire.raw(b"\x00\x00"), ReasonCode.MALFORMED_PACKET),
    ],
)
def test_the_server_says_why_it_closes(send: object, code: ReasonCode) -> None:
    async def check() -> None:
        async with serving({"limits": {"packet_bytes": 1_000}}) as broker:
            wire = await Wire.connect(broker, "bad")
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("#")
            wire.publish("before", b"still counts")
            send(wire)  # type: ignore[operator]
            (bye,) = await wire.closed()
            assert isinstance(bye, Disconnect)
            assert bye.code == code
            assert await watch.published() == [("before", b"still counts")]

    asyncio.run(check())


def test_a_full_listener_and_too_many_subscriptions_are_refused_with_0x97() -> None:
    async def check() -> None:
        listeners = {"default": {"bind": "127.0.0.1:0", "max_connections": 1}}
        async with serving({"listeners": listeners, "limits": {"subscriptions": 1}}) as broker:
            wire = await Wire.connect(broker)
            assert await wire.subscribe("a") == 0
            assert await wire.subscribe("b") == ReasonCode.QUOTA_EXCEEDED
            late = await Wire.connect(broker)
            assert late.connack is not None
            assert late.connack.code == ReasonCode.QUOTA_EXCEEDED

    asyncio.run(check())


def test_packets_right_behind_connect_are_served() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.open(broker)
            wire.send(Connect("c"), Subscribe(1, (Subscription("t"),)), Publish("t", b"early"))
            await wire.expect(ConnAck)
            await wire.expect(SubAck)
            assert (await wire.expect(Publish)).payload == b"early"

    asyncio.run(check())
