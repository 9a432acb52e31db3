"""What comes in from a client: its properties, aliases and QoS, what is kept, and what nobody may publish."""

from __future__ import annotations

import asyncio

import pytest

from gateway.mqtt5.packets import (
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Version,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving

V3, V5 = Version.V311, Version.V5


@pytest.mark.parametrize("version", list(Version))
def test_every_version_and_qos_is_served(version: Version) -> None:
    async def check() -> None:
        async with serving() as broker:
            sub = await Wire.connect(broker, "sub", version)
            pub = await Wire.connect(broker, "pub", version)
            assert sub.connack is not None
            assert sub.connack.code == 0
            assert await sub.subscribe("a/+", 2) == 2
            pub.publish("a/0", b"zero")
            one = pub.publish("a/1", b"one", 1)
            assert (await pub.expect(PubAck)).packet_id == one
            two = pub.publish("a/2", b"two", 2)
            assert (await pub.expect(PubRec)).packet_id == two
            pub.send(PubRel(two))
            await pub.expect(PubComp)
            got = [await sub.expect(Publish) for _ in range(3)]
            assert [(g.topic, g.payload, g.qos) for g in got] == [
                ("a/0", b"zero", 0),
                ("a/1", b"one", 1),
                ("a/2", b"two", 2),
            ]
            sub.send(PubAck(got[1].packet_id), PubRec(got[2].packet_id))
            await sub.expect(PubRel)
            sub.send(PubComp(got[2].packet_id))
            assert await sub.barrier() == []

    asyncio.run(check())


def test_properties_travel_unaltered_and_a_3_1_1_client_gets_the_bare_message() -> None:
    async def check() -> None:
        async with serving() as broker:
            new, old = await Wire.connect(broker), await Wire.connect(broker, "old", V3)
            await new.subscribe("t")
            await old.subscribe("t")
            properties = {
                "content_type": "text/plain",
                "response_topic": "r",
                "correlation_data": b"c",
                "payload_format": 1,
                "user": (("k", "1"), ("k", "2"), ("vmq", "kept by a plain broker")),
                "message_expiry_s": 60,
            }
            pub = await Wire.connect(broker)
            pub.publish("t", b"p", properties=properties)
            got = await new.expect(Publish)
            assert got.properties.user == properties["user"]
            assert (got.properties.content_type, got.properties.response_topic) == ("text/plain", "r")
            assert got.properties.message_expiry_s == 60
            assert (await old.expect(Publish)).payload == b"p"

    asyncio.run(check())


def test_topic_aliases_of_the_client_are_understood_and_bounded() -> None:
    async def check() -> None:
        async with serving({"limits": {"topic_aliases": 2}}) as broker:
            sub, pub = await Wire.connect(broker), await Wire.connect(broker)
            await sub.subscribe("#")
            pub.publish("long/name", b"1", properties={"topic_alias": 2})
            pub.publish("", b"2", properties={"topic_alias": 2})
            assert [(await sub.expect(Publish)).topic for _ in range(2)] == ["long/name"] * 2
            pub.publish("x", properties={"topic_alias": 3})
            (bye,) = await pub.closed()
            assert isinstance(bye, Disconnect)
            assert bye.code == ReasonCode.TOPIC_ALIAS_INVALID

    asyncio.run(check())


def test_the_store_of_retained_messages_is_bounded() -> None:
    async def check() -> None:
        async with serving({"limits": {"retained_messages": 2}}) as broker:
            pub = await Wire.connect(broker)
            for number in range(5):
                pub.publish(f"t/{number}", retain=True)
            pub.publish("t/1", b"replaced", retain=True)
            await pub.barrier()
            await pub.subscribe("t/#")
            assert sorted(await pub.published()) == [("t/1", b"replaced"), ("t/4", b"x")]

    asyncio.run(check())


def test_nobody_publishes_below_sys_and_filters_too_deep_are_refused() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker)
            wire.publish("$SYS/broker/uptime", qos=1)
            assert (await wire.expect(PubAck)).code == ReasonCode.NOT_AUTHORIZED
            assert await wire.subscribe("/".join("a" * 200)) == ReasonCode.TOPIC_FILTER_INVALID

    asyncio.run(check())
