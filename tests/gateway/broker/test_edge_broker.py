"""What clients see of the broker: delivery, retained messages, sessions, wills, refusals."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.config import StartError, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.running import make_broker
from gateway.mqtt5.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import LOOPBACK, Wire, serving
from tests.waits import until

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


def test_the_store_of_retained_messages_is_bounded() -> None:
    async def check() -> None:
        async with serving({"limits": {"retained_messages": 2}}) as broker:
            pub = await Wire.connect(broker)
            for number in range(5):
                pub.publish(f"t/{number}", retain=True)
            pub.publish("t/1", b"replaced", retain=True)
            await pub.barrier()
            await pub.subscribe("t/#")
            assert sorted(await pub.published()) == [("t/0", b"x"), ("t/1", b"replaced")]

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
            broker.tick(broker.now() + 99)
            assert broker.local_filters() == ["t"]
            broker.tick(broker.now() + 101)
            assert broker.local_filters() == []
            assert list(broker.clients()) == []

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


WILL = Will("will", b"gone", 1)


def test_a_will_is_published_when_the_connection_breaks_and_not_after_disconnect() -> None:
    async def check() -> None:
        async with serving() as broker:
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("will")
            polite = await Wire.connect(broker, "polite", will=WILL)
            polite.send(Disconnect())
            await polite.closed()
            broken = await Wire.connect(broker, "broken", will=Will("will", b"broken", retain=True))
            broken.cut()
            assert (await watch.expect(Publish)).payload == b"broken"
            await watch.subscribe("will")
            assert (await watch.expect(Publish)).retain
            with_will = await Wire.connect(broker, "c", will=WILL)
            with_will.send(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
            assert (await watch.expect(Publish)).payload == b"gone"

    asyncio.run(check())


def test_a_will_waits_for_its_delay_and_not_longer_than_the_session() -> None:
    async def check() -> None:
        async with serving() as broker:
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("will/+")
            for name, delay_s, expiry_s in (("a", 10, 50), ("b", 99, 5)):
                will = Will(f"will/{name}", b"x", properties=Properties(will_delay_s=delay_s))
                wire = await Wire.connect(broker, name, will=will, properties={"session_expiry_s": expiry_s})
                wire.cut()
            await until(lambda: dict(broker.clients()) == {"watch": True, "a": False, "b": False})
            start = broker.now()
            broker.tick(start + 4)
            assert await watch.published() == []
            broker.tick(start + 6)
            assert await watch.published() == [("will/b", b"x")]
            back = await Wire.connect(broker, "a", clean_start=False)
            broker.tick(start + 20)
            assert await watch.published() == []
            assert back.connack is not None
            assert back.connack.session_present

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


def test_nobody_publishes_below_sys_and_filters_too_deep_are_refused() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker)
            wire.publish("$SYS/broker/uptime", qos=1)
            assert (await wire.expect(PubAck)).code == ReasonCode.NOT_AUTHORIZED
            assert await wire.subscribe("/".join("a" * 200)) == ReasonCode.TOPIC_FILTER_INVALID

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


def test_shutdown_says_goodbye() -> None:
    async def check() -> None:
        async with serving() as broker:
            new, old = await Wire.connect(broker), await Wire.connect(broker, "old", V3)
        (bye,) = await new.closed()
        assert isinstance(bye, Disconnect)
        assert bye.code == ReasonCode.SERVER_SHUTTING_DOWN
        assert await old.closed() == []

    asyncio.run(check())


def test_a_port_in_use_is_one_clear_line() -> None:
    async def check() -> None:
        async with serving() as broker:
            second = make_broker(parse({"listeners": {"default": {"bind": f"127.0.0.1:{broker.port()}"}}}))
            with pytest.raises(StartError, match=r"listener default: .*the port is in use") as caught:
                await second.start()
            assert "\n" not in str(caught.value)

    asyncio.run(check())


@pytest.mark.parametrize("bind", ["no.such.host.invalid:1", "8.8.8.8:1883"])
def test_an_address_that_cannot_be_bound_is_one_clear_line(bind: str) -> None:
    async def check() -> None:
        with pytest.raises(StartError, match=r"listener default: .*correct bind"):
            await make_broker(parse({"listeners": {"default": {"bind": bind}}})).start()

    asyncio.run(check())


def test_a_plugin_that_does_not_exist_is_one_clear_line() -> None:
    async def check() -> None:
        with pytest.raises(StartError, match=r"no\.such\.Plugin"):
            make_broker(parse({"listeners": LOOPBACK, "plugins": {"no.such.Plugin": {}}}))

    asyncio.run(check())


def test_amqtts_own_configuration_is_accepted() -> None:
    async def check() -> None:
        broker = EdgeBroker(
            {
                "listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0"}},
                "plugins": {
                    "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True},
                },
            }
        )
        await broker.start()
        wire = await Wire.connect(broker, "c", V3)
        assert wire.connack is not None
        assert wire.connack.code == 0
        wire.cut()
        await broker.shutdown()

    asyncio.run(check())


def test_the_end_does_not_wait_for_who_was_refused_and_stays() -> None:
    async def check() -> None:
        async with serving({"allow_anonymous": False, "limits": {"shutdown_s": 1}}) as broker:
            refused = await Wire.connect(broker, "c")
            assert refused.connack is not None
            assert refused.connack.code == ReasonCode.NOT_AUTHORIZED
        assert broker.lifecycle.reached.counts["shutdown_s"] == 0

    asyncio.run(check())
