"""Content-based subscriptions of unchanged clients, over real connections: both spellings, retained messages, groups,
sessions, takeovers, rights, and what is malformed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Publication
from gateway.mqtt5.packets import Properties, Publish, SubAck, Subscribe, Subscription, Unsubscribe, Version
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay

ON: dict[str, Any] = {"subscriptions": {"predicates": True}, "sys_interval": 0}


async def subscribe(wire: Wire, *filters: str, qos: int = 0, where: str | None = None, **options: Any) -> list[int]:
    """Granted QoS or reason of failure, each filter."""
    properties = Properties(user=(("$where", where),)) if where is not None else Properties()
    asked = tuple(Subscription(one, qos, **options) for one in filters)
    wire.send(Subscribe(wire.new_id(), asked, properties))
    return list((await wire.expect(SubAck)).codes)


async def payloads(wire: Wire) -> list[bytes]:
    return [payload for _, payload in await wire.published()]


async def say(
    wire: Wire, *payloads: bytes, topic: str = "t", user: tuple[tuple[str, str], ...] = (), **more: Any
) -> None:
    for payload in payloads:
        wire.publish(topic, payload, properties={"user": user}, **more)
    await wire.barrier()


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@on_loop
async def test_an_expression_behind_the_filter(version: Version) -> None:
    async with serving(ON) as broker:
        hot = await Wire.connect(broker, "hot", version)
        every, device = await Wire.connect(broker, "all"), await Wire.connect(broker, "device")
        assert await subscribe(hot, "plant/+/temp?payload.v>25&payload.on=true") == [0]
        await subscribe(every, "plant/#")
        for payload in (b'{"v":26,"on":true}', b'{"v":26}', b'{"v":25,"on":true}', b"no", b'{"v":"30","on":"true"}'):
            await say(device, payload, topic="plant/1/temp")
        assert await payloads(hot) == [b'{"v":26,"on":true}', b'{"v":"30","on":"true"}']
        assert len(await payloads(every)) == 5
        traffic = broker.exchange.traffic
        assert (traffic.evaluated, traffic.withheld) == (5, 3)


@on_loop
async def test_a_user_property_says_it_for_all_filters_of_a_subscribe() -> None:
    async with serving(ON) as broker:
        wire, device = await Wire.connect(broker, "w"), await Wire.connect(broker, "d")
        assert await subscribe(wire, "t", "u", where="room IN ('a', 'b') AND v > 1") == [0, 0]
        for topic in ("t", "u"):
            for room, v in (("a", "2"), ("c", "2"), ("b", "1"), ("b", "7")):
                await say(device, f"{room}{v}".encode(), topic=topic, user=(("room", room), ("v", v)))
        assert await payloads(wire) == [b"a2", b"b7"] * 2


@pytest.mark.parametrize(("version", "code"), [(Version.V5, 0x8F), (Version.V311, 0x80)])
@on_loop
async def test_what_is_malformed_is_refused_and_the_rest_of_the_packet_is_not(version: Version, code: int) -> None:
    async with serving(ON) as broker:
        wire = await Wire.connect(broker, "w", version)
        assert await subscribe(wire, "a?v>x", "b", "c?", "d/#?v=1", qos=1) == [code, 1, code, 1]
        if version == Version.V5:
            assert await subscribe(wire, "f", where="v > ") == [0x8F]
            assert await subscribe(wire, "f?v=1", where="v = 1") == [0x8F]
        assert broker.exchange.delivery.router.filters() == ["b", "d/#"]


@on_loop
async def test_off_by_default_a_question_mark_is_part_of_the_name() -> None:
    async with serving() as broker:
        wire, device = await Wire.connect(broker, "w"), await Wire.connect(broker, "d")
        assert await subscribe(wire, "t?v=1", where="v = 1") == [0]
        await say(device, b"x", topic="t?v=1")
        await say(device, b"y", topic="t", user=(("v", "1"),))
        assert await payloads(wire) == [b"x"]


@on_loop
async def test_retained_messages_are_chosen_too() -> None:
    async with serving(ON) as broker:
        device, wire = await Wire.connect(broker, "d"), await Wire.connect(broker, "w")
        for at in range(4):
            await say(device, b"%d" % at, topic=f"t/{at}", retain=True)
        await subscribe(wire, "t/#?payload>1")
        assert sorted(await payloads(wire)) == [b"2", b"3"]


@on_loop
async def test_each_predicate_of_a_group_makes_a_group_and_each_message_goes_to_one_member() -> None:
    async with serving(ON) as broker:
        device = await Wire.connect(broker, "d")
        members = [await Wire.connect(broker, f"m{at}") for at in range(3)]
        for one in members[:2]:
            await subscribe(one, "$share/g/t?payload>1")
        await subscribe(members[2], "$share/g/t")
        await say(device, *(b"%d" % at for at in range(4)))
        found = [await payloads(one) for one in members]
        assert sorted(found[0] + found[1]) == [b"2", b"3"]
        assert len(found[0]) == 1
        assert found[2] == [b"0", b"1", b"2", b"3"]


@on_loop
async def test_another_predicate_beside_the_same_filter_replaces_it_also_in_a_group() -> None:
    async with serving(ON) as broker:
        device, wire = await Wire.connect(broker, "d"), await Wire.connect(broker, "w")
        for topic_filter in ("t", "$share/g/u"):
            await subscribe(wire, topic_filter, where="payload > 5")
            await subscribe(wire, topic_filter, where="payload > 2")
        for topic in "tu":
            await say(device, b"1", b"3", b"6", topic=topic)
        assert await payloads(wire) == [b"3", b"6"] * 2
        assert broker.exchange.delivery.router.predicates == 2
        wire.send(Unsubscribe(wire.new_id(), ("t", "$share/g/u")))
        await wire.barrier()
        assert (broker.exchange.delivery.router.predicates, broker.exchange.delivery.router.filters()) == (0, [])


@on_loop
async def test_one_client_holds_the_filter_under_several_expressions() -> None:
    async with serving(ON) as broker:
        device, wire = await Wire.connect(broker, "d"), await Wire.connect(broker, "w")
        await subscribe(wire, "t?payload<1", "t?payload>2", "t?payload>3")
        await say(device, b"0", b"1", b"3", b"9")
        assert await payloads(wire) == [b"0", b"3", b"9"]
        wire.send(Unsubscribe(wire.new_id(), ("t?payload>2",)))
        await wire.barrier()
        await say(device, b"0", b"3", b"9")
        assert await payloads(wire) == [b"0", b"9"]


@on_loop
async def test_what_waits_for_an_absent_client_was_chosen_when_it_came() -> None:
    async with serving(ON) as broker:
        kept = {"clean_start": False, "properties": {"session_expiry_s": 100}}
        wire, device = await Wire.connect(broker, "w", **kept), await Wire.connect(broker, "d")
        await subscribe(wire, "t?payload>1", qos=1)
        wire.cut()
        for payload in (b"1", b"2", b"3"):
            device.publish("t", payload, 1)
        await device.barrier()
        again = await Wire.connect(broker, "w", **kept)  # and a takeover keeps it
        assert [(await again.expect(Publish)).payload for _ in range(2)] == [b"2", b"3"]
        taken = await Wire.connect(broker, "w", clean_start=False, properties={"session_expiry_s": 100})
        await taken.barrier()
        await say(device, b"0", b"4")
        assert [payload for _, payload in await taken.published() if payload == b"4"] == [b"4"]


@on_loop
async def test_a_restart_keeps_predicates(tmp_path: Path) -> None:
    stored = {**ON, "data": str(tmp_path)}
    kept = {"clean_start": False, "properties": {"session_expiry_s": 100}}
    async with serving(stored) as broker:
        wire = await Wire.connect(broker, "w", **kept)
        await subscribe(wire, "t?payload>1", qos=1)
        await subscribe(wire, "u", where="payload > 5", qos=1)
    async with serving(stored) as broker:
        device = await Wire.connect(broker, "d")
        assert broker.exchange.delivery.router.predicates == 2
        for topic, payload in (("t", b"1"), ("t", b"2"), ("u", b"2"), ("u", b"6")):
            device.publish(topic, payload, 1)
        await device.barrier()
        again = await Wire.connect(broker, "w", **kept)
        assert [(await again.expect(Publish)).payload for _ in range(2)] == [b"2", b"6"]


@on_loop
async def test_rights_are_those_of_the_filter_before_the_expression() -> None:
    acl = {"anonymous": ["t/#"]}
    plugins = {
        "amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True},
        "amqtt.plugins.topic_checking.TopicAccessControlListPlugin": {"subscribe_acl": acl},
    }
    async with serving({**ON, "plugins": plugins}) as broker:
        wire = await Wire.connect(broker, "w")
        assert await subscribe(wire, "t/a?v=1", "u?v=1", "$share/g/u?v=1") == [0, 0x87, 0x87]


@on_loop
async def test_predicates_beyond_the_bounds_of_the_index_are_refused() -> None:
    async with serving(ON) as broker:
        wire = await Wire.connect(broker, "w")
        filters = [f"t{at}?" + "&".join(f"n{at}x{name}=1" for name in range(16)) for at in range(17)]
        assert await subscribe(wire, *filters) == [0] * 8 + [ReasonCode.QUOTA_EXCEEDED] * 9, "half is for others"
        assert await subscribe(wire, filters[0]) == [0]


@on_loop
async def test_the_overlay_is_told_the_filter_alone_and_what_it_brings_is_judged_here() -> None:
    overlay = FakeOverlay()
    async with serving(ON, overlay=overlay) as broker:
        wire = await Wire.connect(broker, "w")
        await subscribe(wire, "far/+?payload>1", "far/+?payload>2")
        await subscribe(wire, "$share/g/far/x", where="payload > 2")
        assert overlay.filters == ["+far/+", "+far/+", "+far/x"], "of the second, too, which wants something else"
        (joined,) = overlay.groups
        assert joined.startswith("+g/"), "another group than g without a predicate"
        for payload in (b"1", b"2", b"3"):
            broker.local.deliver_local(Publication("far/x", payload, 1))
        found = await payloads(wire)
        assert sorted(found) == [b"2", b"3", b"3"]
        lost = [(each.name, each.filter) for each in broker.local.local_groups() if each.name.startswith("g/")]
        broker.local.deliver_local(Publication("far/x", b"4", 1), lost)
        broker.local.deliver_shared(lost[0], Publication("far/x", b"5", 1))
        assert [(await wire.expect(Publish)).payload for _ in range(2)] == [b"4", b"5"]
        wire.send(Unsubscribe(wire.new_id(), ("far/+?payload>1", "far/+?payload>2", "$share/g/far/x")))
        await wire.barrier()
        assert overlay.filters[3:] == ["-far/+", "-far/x"]
        assert overlay.groups[1].startswith("-g/")
