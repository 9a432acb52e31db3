"""SUBSCRIBE and UNSUBSCRIBE: what is answered, what was retained, and what a group inherits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import (
    PubAck,
    Publish,
    UnsubAck,
    Unsubscribe,
    Version,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, on_loop, serving

V3, V5 = Version.V311, Version.V5


def test_retained_messages_and_retain_handling() -> None:
    async def check() -> None:
        async with serving() as broker:
            pub = await Wire.connect(broker)
            for name in ("s/a", "s/b", "$SYS/x", "$dollar/a"):
                pub.publish(name, name.encode(), 1, retain=True)
            await pub.barrier()
            sub = await Wire.connect(broker)
            await sub.subscribe("+/+", 2)
            got = [await sub.expect(Publish) for _ in range(2)]
            assert {(g.topic, g.retain, g.qos) for g in got} == {("s/a", True, 1), ("s/b", True, 1)}
            sub.send(*[PubAck(g.packet_id) for g in got])
            await sub.subscribe("s/a", 0, retain_handling=2)
            await sub.subscribe("s/b", 0, retain_handling=1)
            assert [g[0] for g in await sub.published()] == ["s/b"]
            await sub.subscribe("s/b", 0, retain_handling=1)
            assert await sub.published() == []
            pub.publish("s/a", b"", retain=True)
            await pub.barrier()
            fresh = await Wire.connect(broker)
            await fresh.subscribe("s/#")
            assert await fresh.published() == [("s/b", b"s/b")]
            await fresh.subscribe("$dollar/#")
            assert await fresh.published() == [("$dollar/a", b"$dollar/a")]

    asyncio.run(check())


def test_what_a_dead_member_of_a_group_left_unfinished_goes_to_another() -> None:
    """MQTT 5.0 §4.8.2: QoS 1 in flight and what waited go on; QoS 2 in flight does not; nothing is doubled."""

    async def check() -> None:
        async with serving({"limits": {"in_flight": 2}}) as broker:
            dying = await Wire.connect(broker, "dying")
            assert await dying.subscribe("$share/g/t/#", 2) == 2
            await dying.subscribe("own/#", 1)
            pub = await Wire.connect(broker)
            pub.publish("t/1", b"in flight", 1)
            pub.publish("t/2", b"in flight, QoS 2", 2)
            pub.publish("t/3", b"waiting", 1)
            pub.publish("own/1", b"its own", 1)
            await pub.barrier()
            assert [(await dying.expect(Publish)).payload for _ in range(2)] == [b"in flight", b"in flight, QoS 2"]
            other = await Wire.connect(broker, "other")
            await other.subscribe("$share/g/t/#", 2)
            dying.cut()  # its session ends with the connection
            got = [await other.expect(Publish) for _ in range(2)]
            assert [(publish.topic, publish.payload) for publish in got] == [("t/1", b"in flight"), ("t/3", b"waiting")]
            other.send(*(PubAck(publish.packet_id) for publish in got))
            assert await other.barrier() == []

    asyncio.run(check())


def test_unsubscribe_says_what_existed() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker)
            await wire.subscribe("a")
            wire.send(Unsubscribe(5, ("a", "b")))
            assert (await wire.expect(UnsubAck)).codes == (0, ReasonCode.NO_SUBSCRIPTION_EXISTED)
            wire.publish("a")
            assert await wire.barrier() == []

    asyncio.run(check())


@on_loop
async def test_retained_messages_that_wait_for_the_disk_do_not_stop_the_loop(tmp_path: Path) -> None:
    number, config = 9, {"listeners": {"default": {"bind": "127.0.0.1:0"}}, "data": str(tmp_path)}
    async with serving(config) as broker:
        for place in range(number):
            broker.exchange.retain(None, Message(f"ward/{place}", bytes(1_000_000), 0, True))
        sub = await Wire.connect(broker, "sub", properties={"session_expiry_s": 3_600})
        await sub.subscribe("ward/#", 0)
        for _ in range(number):
            await sub.expect(Publish)


@on_loop
async def test_the_bridge_of_another_broker_on_3_1_1_gets_no_echo_and_retain_as_published() -> None:
    async with serving() as broker:
        bridge = await Wire.connect(broker, "edge", V3, is_bridge=True, clean_start=False)
        await bridge.subscribe("#", 1)
        bridge.publish("t", b"own", 1)
        other = await Wire.connect(broker, "other")
        other.publish("t", b"state", retain=True)
        await other.barrier()
        got = [packet for packet in await bridge.barrier() if isinstance(packet, Publish)]
        assert [(one.payload, one.retain) for one in got] == [(b"state", True)]
        bridge.cut()
        bridge = await Wire.connect(broker, "edge", V3, is_bridge=True, clean_start=False)
        bridge.publish("t", b"after it came back", 1)
        assert await bridge.published() == []
