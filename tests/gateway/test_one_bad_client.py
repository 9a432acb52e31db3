"""One bad client beside others, in combinations: wills, client ids, groups, retained messages and rights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.base import turns
from gateway.broker import exchange, holding, retained_sending, subscribing
from gateway.mqtt5.packets import (
    Disconnect,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.parsing import FILTERS_MAX
from gateway.mqtt5.types import ReasonCode
from gateway.sockets import connection
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.gateway.test_rights_first import come, config, write
from tests.gateway.turned import Turned
from tests.waits import until


def no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a turn at each look at the clock, also that of a client that sends alone."""
    for name in ("TURN_S", "ALONE_S"):
        monkeypatch.setattr(turns, name, 0.0)


@pytest.mark.attack(149)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_what_a_user_publishes_counts_for_the_user_wills_too(tmp_path: Path, version: Version) -> None:
    """Attack: a user retains under each of a thousand client ids, by their wills: each was an owner of its own."""
    path, overlay = tmp_path / "security.json", FakeOverlay()
    write(path, mallory="topic readwrite #")
    async with serving(config(path), overlay=overlay) as broker:
        will = Will("far/will", b"x", 1, True)
        one = await come(broker, "mallory", version, will=will)
        one.publish("far/own", b"x", 1, retain=True)
        await until(lambda: overlay.published)
        one.cut()
        await until(lambda: len(overlay.published) == 2)
        assert [each.owner for _, each in overlay.published] == ["user mallory"] * 2


@on_loop
async def test_nameless_clients_of_one_address_are_one_owner() -> None:
    overlay = FakeOverlay()
    async with serving(overlay=overlay) as broker:
        for name in ("one", "two"):
            wire = await Wire.connect(broker, name)
            wire.publish("far/own", b"x", 1)
            await until(lambda: overlay.done)
            overlay.done.pop()(0)
            await wire.expect(PubAck)
        assert [(client, each.owner) for client, each in overlay.published] == [("one", "here"), ("two", "here")]


@pytest.mark.attack(151)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_a_packet_of_many_filters_is_taken_in_turns(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: SUBSCRIBEs of 150,000 filters: all other clients waited for seconds, while one packet was taken."""
    at_once: list[int] = []
    for name in ("_entered", "_removed"):
        taken = getattr(subscribing.Subscribing, name)

        def counted(self: Any, client: Any, asked: Any, *more: Any, taken: Any = taken) -> Any:
            at_once.append(len(getattr(asked, "subscriptions", asked)))
            return taken(self, client, asked, *more)

        monkeypatch.setattr(subscribing.Subscribing, name, counted)
    filters = tuple(f"s/{n}" for n in range(1000))
    async with serving() as broker:
        one, other = await Wire.connect(broker, "one", version), await Wire.connect(broker, "other")
        one.send(Subscribe(7, tuple(Subscription(each, 1) for each in filters)))
        other.publish("s/999", b"x", 1)  # other clients' packets are taken between two turns
        assert (await one.expect(SubAck)).codes == (1,) * 1000
        other.publish("s/998", b"y", 1)
        assert (await one.expect(Publish)).topic in {"s/998", "s/999"}
        one.send(Unsubscribe(8, filters), Subscribe(9, (Subscription("s/1", 0),)))
        assert (await one.expect(UnsubAck)).packet_id == 8
        assert (await one.expect(SubAck)).packet_id == 9, "in the order of the client"
        assert set(broker.lifecycle.clients["one"].filters) == {"s/1"}
        assert max(at_once) <= subscribing.FILTERS_AT_ONCE
        assert sum(at_once) == 2001


@pytest.mark.attack(151)
@on_loop
async def test_more_filters_than_anybody_may_hold_are_not_even_parsed() -> None:
    async with serving() as broker:
        for packet in (
            Subscribe(1, (Subscription("s", 0),) * (FILTERS_MAX + 1)),
            Unsubscribe(1, ("s",) * (FILTERS_MAX + 1)),
        ):
            wire = await Wire.connect(broker, "one")
            wire.send(packet)
            assert (await wire.expect(Disconnect)).code == ReasonCode.QUOTA_EXCEEDED


@pytest.mark.attack(154)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_retained_messages_that_a_client_may_not_receive_are_looked_at_in_turns(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: `#` by a client that may receive nothing of 100,000 retained messages: all were judged in one turn."""
    path = tmp_path / "security.json"
    write(path, alice="topic write secret/#", eve="topic read public/#")
    async with serving(config(path)) as broker:
        alice, eve = await come(broker, "alice"), await come(broker, "eve", version)
        for number in range(4 * retained_sending.LOOKS_AT_ONCE):
            alice.publish(f"secret/{number}", b"x", 1, retain=True)
            await alice.expect(PubAck)
        turned, verdict = Turned(), broker.host.verdict

        def judged(*asked: Any) -> bool | None:
            turned.add()
            return verdict(*asked)

        monkeypatch.setattr(broker.host, "verdict", judged)
        assert await eve.subscribe("#", 1) == 1
        assert await eve.barrier() == []
        turned.stop()
        assert 1 < turned.most <= 2 * retained_sending.LOOKS_AT_ONCE


@pytest.mark.attack(154)
@on_loop
async def test_filters_that_match_little_among_many_names_are_looked_up_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: 200 filters `r/+/x` among 20,000 retained names: nobody else was served for five seconds."""
    monkeypatch.setattr(retained_sending, "TURN_S", 60.0)
    monkeypatch.setattr(turns, "TURN_S", 60.0)
    async with serving() as broker:
        wire = await Wire.connect(broker, "one")
        turned, matching = Turned(), broker.exchange.retained.matching

        def looked_up(*asked: Any) -> Any:
            turned.add()
            return matching(*asked)

        monkeypatch.setattr(broker.exchange.retained, "matching", looked_up)
        wire.send(Subscribe(1, tuple(Subscription(f"r/+/{n}", 1) for n in range(4 * retained_sending.LOOKS_AT_ONCE))))
        assert len((await wire.expect(SubAck)).codes) == 4 * retained_sending.LOOKS_AT_ONCE
        assert await wire.barrier() == []
        turned.stop()
        assert 1 < turned.most <= 2 * retained_sending.LOOKS_AT_ONCE


@pytest.mark.attack(170)
@pytest.mark.parametrize("qos", [0, 1])
@on_loop
async def test_a_long_read_is_taken_in_parts_and_others_are_served_between_them(
    qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a client writes as fast as it can; one read of 256 KiB was taken in one turn of the event loop."""
    no_turn(monkeypatch)
    monkeypatch.setattr(connection, "PART_BYTES", 64)
    async with serving() as broker:
        bad, good = await Wire.connect(broker, "bad"), await Wire.connect(broker, "good")
        reader = await Wire.connect(broker, "reader")
        await reader.subscribe("bad/#")
        turned, read = Turned(), connection.MqttConnection._take_bytes

        def counted(self: Any, data: bytes) -> None:
            if self.client is not None and self.client.client_id == "bad":
                assert len(data) <= 64 or qos == 0
                turned.add()
            read(self, data)

        monkeypatch.setattr(connection.MqttConnection, "_take_bytes", counted)
        for number in range(200):
            bad.publish(f"bad/{number}", b"x" * (number % 40), qos)
        if qos == 0:
            await bad.writer.drain()
            bad.cut()  # what it sent before counts all the same, and in its order
        assert await good.barrier() == []
        for number in range(200):
            assert (await reader.expect(Publish)).topic == f"bad/{number}"
        turned.stop()
        assert turned.most == 1 or qos == 0, "the rest of a connection that ended is taken at once"


@pytest.mark.attack(170)
@on_loop
async def test_a_long_read_waits_for_the_turn_of_its_owner_while_others_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a flood's read was taken where the event loop reads sockets, and another part of it right behind, in its
    owner's turn: a packet that came meanwhile waited for both.
    """
    monkeypatch.setattr(connection, "PART_BYTES", 64)
    async with serving() as broker:
        bad, good = await Wire.connect(broker, "bad"), await Wire.connect(broker, "good")
        reading, taken = [""], list[str]()
        received, read = connection.MqttConnection.data_received, connection.MqttConnection._take_bytes

        def coming(self: Any, data: bytes) -> None:
            reading[0] = "socket"
            received(self, data)
            reading[0] = "turn"

        def counted(self: Any, data: bytes) -> None:
            if self.client is not None and self.client.client_id == "bad" and len(data) == 64:
                taken.append(reading[0])
            read(self, data)

        monkeypatch.setattr(connection.MqttConnection, "data_received", coming)
        monkeypatch.setattr(connection.MqttConnection, "_take_bytes", counted)
        assert await good.barrier() == []
        for number in range(200):
            bad.publish(f"bad/{number}", b"x")
        assert await bad.barrier() == []
        assert set(taken) == {"turn"}


@pytest.mark.attack(157)
@pytest.mark.parametrize("qos", [0, 1])
@on_loop
async def test_a_read_of_costly_publications_leaves_others_their_turn(
    qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: 500 discovery messages of half a millisecond each in one read: others waited for all of them."""
    async with serving() as broker:
        bad, good = await Wire.connect(broker, "bad"), await Wire.connect(broker, "good")
        reader = await Wire.connect(broker, "reader")
        await reader.subscribe("bad/#")
        turned, published = Turned(), broker.exchange.route_publish

        def costly(client: Any, publish: Publish) -> Any:
            turned.add()
            return published(client, publish)

        monkeypatch.setattr(broker.lifecycle, "route_publish", costly)
        monkeypatch.setattr(type(broker.lifecycle), "is_costly", True)
        monkeypatch.setattr(broker.lifecycle, "passes_runs", lambda client: False)  # as where tracing looks at each
        no_turn(monkeypatch)
        for number in range(200):
            bad.publish(f"bad/{number}", b"x", qos)
        if qos == 0:
            await bad.writer.drain()
            bad.cut()  # what it sent before counts all the same, and in its order
        assert await good.barrier() == []
        for number in range(200):
            assert (await reader.expect(Publish)).topic == f"bad/{number}"
        turned.stop()
        assert 0 < turned.most <= connection.CLOCK_EVERY


@pytest.mark.attack(185)
@on_loop
async def test_what_a_session_of_many_filters_leaves_to_its_groups_is_passed_on_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: a session of 10,000 filters ends with a thousand messages of its groups: each was compared with each
    filter, in one turn of the event loop, for twenty seconds.
    """
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # each look at the clock ends a turn
    turned, wants = Turned(), subscribing.wants

    def compared(*asked: Any) -> bool:
        turned.add()
        return wants(*asked)

    async with serving() as broker:
        bad, pub, heir = [await Wire.connect(broker, name) for name in ("bad", "pub", "heir")]
        monkeypatch.setattr(subscribing, "wants", compared)
        filters = [f"far/{number}" for number in range(200)] + ["+/x", "a/+", "$share/g/a/x", "$share/g/#"]
        for each in filters:
            await bad.subscribe(each, 1)
        for number in range(100):
            pub.publish("a/x", b"%d" % number, 1)
        await pub.barrier()
        for each in ("$share/g/a/x", "$share/g/#"):
            await heir.subscribe(each, 1)
        turned.done = turned.most = 0
        bad.cut()
        came = list[int]()
        while len(came) < 200:
            message = await heir.expect(Publish)
            heir.send(PubAck(message.packet_id))
            came.append(int(message.payload))
        assert sorted(came) == sorted([*range(100)] * 2)
        assert turned.most <= 4, "the filters of one message"
        assert turned.done <= 4 * 100, "of those filters that match it"
        turned.stop()


@pytest.mark.attack(186)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@pytest.mark.parametrize("gateway", [False, True])
@on_loop
async def test_a_read_of_a_thousand_subscriptions_fills_no_memory_with_what_is_retained(
    version: Version, gateway: bool
) -> None:
    """Attack: a read of 7 KB with 600 SUBSCRIBEs to what takes 900 KB, and nothing is taken: 500 MB waited for it, and
    all others for a fifth of a second. At a gateway a quorum counts them all at once.
    """
    limits, counted = {"write_bytes": 65_536}, list[Callable[[], None]]()

    class Overlay(FakeOverlay):
        def when_accepted(self, topic_filters: list[str], done: Callable[[], None]) -> bool:
            counted.append(done)
            return True

    async with serving({"limits": limits}, overlay=Overlay() if gateway else None) as broker:
        bad, good = await Wire.connect(broker, "bad", version), await Wire.connect(broker, "good")
        for number in range(20):
            good.publish(f"state/{number}", bytes(9_000), retain=True)
        await good.barrier()
        bad.send(*(Subscribe(number, (Subscription("state/+", 0),)) for number in range(1, 101)))
        if gateway:
            await until(lambda: len(counted) == 100)
            for done in counted:
                done()
        for _ in range(50):
            await good.barrier()
        held = broker.lifecycle.clients["bad"].connection
        assert isinstance(held, connection.MqttConnection)
        assert held._unsent() + sum(map(len, held._out)) < 3 << 20, "18 MB are asked for"


@pytest.mark.attack(188)
@on_loop
async def test_who_waits_for_a_slow_reader_goes_on_in_turns_when_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a thousand connections, each with a thousand publications for a reader that takes none, and then goes:
    all were routed in one turn of the event loop.
    """
    async with serving({"limits": {"in_flight": 1, "queue_messages": 10}}) as broker:
        reader = await Wire.connect(broker, "reader")
        await reader.subscribe("bad/x", 1)
        bad = [await Wire.connect(broker, f"bad{number}") for number in range(5)]
        for wire in bad:
            for _ in range(100):
                wire.publish("bad/x", b"x", 1)
        await until(lambda: broker.exchange.holding.waiting == 5)
        no_turn(monkeypatch)
        for module in (exchange, holding):
            monkeypatch.setattr(module, "TURN_S", 0.0)
        turned, forward = Turned(), broker.exchange.delivery.forward

        def forwarded(*asked: Any) -> bool:
            turned.add()
            return forward(*asked)

        monkeypatch.setattr(broker.exchange.delivery, "forward", forwarded)
        reader.cut()
        for wire in bad:
            for _ in range(100):
                await wire.expect(PubAck)
        turned.stop()
        assert turned.done > 400
        assert turned.most <= 2 * connection.PLAIN_EVERY
