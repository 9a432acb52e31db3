"""Who gets what, how often and at which QoS: overlapping subscriptions, shared groups, what a client can take."""

from __future__ import annotations

import asyncio

from gateway.mqtt5.packets import (
    PubAck,
    Publish,
    PubRec,
    UnsubAck,
    Unsubscribe,
    Version,
)
from tests.gateway.harness import Wire, serving
from tests.waits import until

V3, V5 = Version.V311, Version.V5


def test_delivery_is_at_the_smaller_qos_and_overlapping_subscriptions_give_one_copy() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub, pub = await Wire.connect(broker), await Wire.connect(broker)
            await sub.subscribe("a/#", 0, identifier=7)
            await sub.subscribe("a/b", 1, identifier=9)
            await sub.subscribe("c", 2)
            pub.publish("a/b", qos=2)
            pub.publish("c", qos=1)
            await pub.expect(PubRec)
            await pub.expect(PubAck)
            first, second = await sub.expect(Publish), await sub.expect(Publish)
            assert (first.qos, sorted(first.properties.subscription_ids)) == (1, [7, 9])
            assert second.qos == 1
            assert await sub.barrier() == []

    asyncio.run(check())


def test_no_local_and_retain_as_published() -> None:
    async def check() -> None:
        async with serving() as broker:
            both = await Wire.connect(broker)
            await both.subscribe("t", no_local=True)
            await both.subscribe("+", retain_as_published=True, identifier=3)
            other = await Wire.connect(broker)
            await other.subscribe("t")
            both.publish("t", retain=True)
            echo = await both.expect(Publish)
            # Its own message only by the subscription that is not No Local.
            assert echo.properties.subscription_ids == (3,)
            assert echo.retain
            assert not (await other.expect(Publish)).retain
            other.publish("t", b"2")
            assert (await both.expect(Publish)).payload == b"2"

    asyncio.run(check())


def test_a_shared_subscription_goes_round_and_skips_members_that_are_away() -> None:
    async def check() -> None:
        async with serving() as broker:
            members = [await Wire.connect(broker, f"m{n}") for n in range(3)]
            for member in members:
                assert await member.subscribe("$share/g/t/#", 1) == 1
            plain, pub = await Wire.connect(broker), await Wire.connect(broker)
            await plain.subscribe("t/#")
            for number in range(6):
                pub.publish("t/x", b"%d" % number, 1)
            await pub.barrier()
            shares = [await member.published() for member in members]
            assert [len(share) for share in shares] == [2, 2, 2]
            assert len(await plain.published()) == 6
            members[0].cut()
            await until(lambda: dict(broker.clients()).get("m0") is None)
            for number in range(4):
                pub.publish("t/x", b"%d" % number)
            await pub.barrier()
            assert [len(await member.published()) for member in members[1:]] == [2, 2]
            members[1].send(Unsubscribe(99, ("$share/g/t/#",)))
            assert (await members[1].expect(UnsubAck)).codes == (0,)

    asyncio.run(check())


def test_qos_0_reaches_receivers_of_every_kind_in_the_same_order() -> None:
    async def check() -> None:
        async with serving() as broker:
            wires = {
                "old": await Wire.connect(broker, "old", V3),
                "new": await Wire.connect(broker, "new"),
                "aliases": await Wire.connect(broker, "aliases", properties={"topic_alias_maximum": 4}),
                "small": await Wire.connect(broker, "small", properties={"maximum_packet_size": 30}),
                "identified": await Wire.connect(broker, "identified"),
                "twice": await Wire.connect(broker, "twice"),
                "shared": await Wire.connect(broker, "shared"),
            }
            for name, wire in wires.items():
                topic_filter = "$share/g/long/topic" if name == "shared" else "long/topic"
                await wire.subscribe(topic_filter, 2, identifier=5 if name == "identified" else 0)
            await wires["twice"].subscribe("long/#", 1, no_local=True)
            own = wires["twice"]
            for number in range(3):
                own.publish("long/topic", b"%d" % number)
                own.publish("long/topic", b"%d" % number * 30)
                own.publish("long/topic", b"with properties", properties={"content_type": "t"})
            await own.barrier()
            expected = [b for n in range(3) for b in (b"%d" % n, b"%d" % n * 30, b"with properties")]
            for name, wire in wires.items():
                if name == "twice":
                    continue
                messages = [packet for packet in await wire.barrier() if isinstance(packet, Publish)]
                payloads = [message.payload for message in messages]
                assert payloads == ([b"0", b"1", b"2"] if name == "small" else expected), name
                ids = {message.properties.subscription_ids for message in messages}
                assert ids == {(5,) if name == "identified" else ()}
                assert {message.qos for message in messages} == {0}
            aliased = broker.lifecycle.clients["aliases"].session.figures.delivered
            assert aliased == 9

    asyncio.run(check())


def test_receive_maximum_of_the_client_is_kept() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub = await Wire.connect(broker, properties={"receive_maximum": 2})
            await sub.subscribe("t", 1)
            pub = await Wire.connect(broker)
            for number in range(5):
                pub.publish("t", b"%d" % number, 1)
            await pub.barrier()
            got: list[bytes] = []
            while len(got) < 5:
                batch = [packet for packet in await sub.barrier() if isinstance(packet, Publish)]
                assert 0 < len(batch) <= 2
                got += [packet.payload for packet in batch]
                sub.send(*[PubAck(packet.packet_id) for packet in batch])
            assert got == [b"0", b"1", b"2", b"3", b"4"]

    asyncio.run(check())


def test_maximum_packet_size_of_the_client_is_kept() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub = await Wire.connect(broker, "sub", properties={"maximum_packet_size": 40})
            await sub.subscribe("t", 1)
            pub = await Wire.connect(broker)
            pub.publish("t", b"x" * 100, 1)
            pub.publish("t", b"x" * 100, 0)
            pub.publish("t", b"small", 1)
            await pub.barrier()
            assert await sub.published() == [("t", b"small")]

    asyncio.run(check())
