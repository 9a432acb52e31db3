"""What is acknowledged is delivered: publishers wait for a receiver that is connected and slow, and for how long."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from bridge.contract import Publication
from gateway.base.config import ConfigError, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.holding import RESPITE
from gateway.mqtt5.packets import PingReq, PingResp, PubAck, Publish, PubRec, Version, Will
from tests.gateway.harness import Wire, on_loop, serving
from tests.waits import until

QUEUE = 20
LIMITS = {"queue_messages": QUEUE, "in_flight": 4, "hold_s": 30}


def configured(limits: dict[str, Any] | None = None, **listener: Any) -> dict[str, Any]:
    return {"listeners": {"default": {"bind": "127.0.0.1:0", **listener}}, "limits": {**LIMITS, **(limits or {})}}


def dropped(broker: EdgeBroker) -> int:
    return broker.operation.observe().dropped["queue_full"]


async def publishers(
    broker: EdgeBroker, number: int, topic: str = "ward/1", qos: int = 1, payload: bytes = b"", names: str = "p"
) -> list[Wire]:
    """Each has sent one message, its number unless there is a payload, and got no answer yet."""
    wires = [await Wire.connect(broker, f"{names}{place}") for place in range(number)]
    for place, wire in enumerate(wires):
        wire.send(Publish(topic, payload or str(place).encode(), qos, packet_id=1))
    return wires


async def take(sub: Wire, number: int) -> list[bytes]:
    taken = []
    for _ in range(number):
        publish = await sub.expect(Publish)
        taken.append(publish.payload)
        sub.send(PubAck(publish.packet_id))
    return taken


@pytest.mark.long
@on_loop
async def test_five_hundred_publishers_with_one_message_each_lose_nothing_that_was_acknowledged() -> None:
    rounds, number = 8, 100
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        wires = await publishers(broker, number)

        async def publish(wire: Wire) -> None:
            for packet_id in range(2, rounds + 1):
                await wire.expect(PubAck)
                wire.send(Publish("ward/1", b"again", 1, packet_id=packet_id))
            await wire.expect(PubAck)

        async with asyncio.TaskGroup() as group:
            for wire in wires:
                group.create_task(publish(wire))
            taken = await take(sub, rounds * number)
        assert len(taken) == rounds * number
        assert dropped(broker) == 0
        assert broker.operation.observe().traffic.held > 0


@on_loop
async def test_publications_of_one_publisher_wait_together_and_go_in_order_within_the_room() -> None:
    publications, window = 60, 12
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        wires = [await Wire.connect(broker, f"p{place}") for place in range(4)]

        async def publish(place: int, wire: Wire) -> None:
            for number in range(publications):
                if number >= window:
                    await wire.expect(PubAck)
                payload = f"{place} {number}".encode()
                wire.send(Publish("ward/1", payload, 1, packet_id=number % window + 1))

        async with asyncio.TaskGroup() as group:
            for place, wire in enumerate(wires):
                group.create_task(publish(place, wire))
            taken: list[bytes] = []
            while len(taken) < publications * len(wires):
                taken += await take(sub, 1)
                assert len(broker.lifecycle.clients["sub"].session.waiting) <= QUEUE // 2
        for place in range(len(wires)):
            own = [payload for payload in taken if payload.startswith(b"%d " % place)]
            assert own == [b"%d %d" % (place, number) for number in range(publications)]
        assert dropped(broker) == 0


@on_loop
async def test_publications_behind_one_that_waits_do_not_overflow_a_second_slow_receiver() -> None:
    async with serving(configured()) as broker:
        subs = [await Wire.connect(broker, f"sub{place}") for place in range(2)]
        for place, sub in enumerate(subs):
            await sub.subscribe(f"ward/{place}", 1)
        pub = await Wire.connect(broker, "pub")
        for number in range(4 * QUEUE):
            pub.send(Publish(f"ward/{number % 2}", b"%d" % number, 1, packet_id=number + 1))
        for turn in range(2 * QUEUE):
            for place, sub in enumerate(subs):
                assert await take(sub, 1) == [b"%d" % (2 * turn + place)]
        assert dropped(broker) == 0


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("qos", [1, 2])
@on_loop
async def test_nothing_is_acknowledged_that_does_not_fit_and_all_of_it_arrives(version: Version, qos: int) -> None:
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub", version)
        await sub.subscribe("ward/#", 1)
        wires = await publishers(broker, 40, qos=qos)
        await until(lambda: broker.operation.observe().held_now == 40 - 4 - QUEUE // 2)
        shown = broker.operation.observe()
        assert (shown.queued_messages, shown.behind) == (QUEUE // 2, 1)
        assert sorted(map(int, await take(sub, 40))) == list(range(40))
        for wire in wires:
            await wire.expect(PubAck if qos == 1 else PubRec)
        assert dropped(broker) == 0
        assert broker.operation.observe().behind == 0


@on_loop
async def test_publications_go_on_in_the_order_in_which_they_came() -> None:
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        pub = await Wire.connect(broker, "pub")
        pub.send(*(Publish("ward/1", str(n).encode(), 1, packet_id=n + 1) for n in range(100)))
        assert [int(one) for one in await take(sub, 100)] == list(range(100))
        assert [(await pub.expect(PubAck)).packet_id for _ in range(100)] == list(range(1, 101))


@on_loop
async def test_a_stuck_receiver_costs_its_publishers_the_stated_time_and_then_none() -> None:
    async with serving(configured({"hold_s": 0.05})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        wires = await publishers(broker, 40)
        for wire in wires:
            await wire.expect(PubAck)
        shown = broker.operation.observe()
        assert shown.reached["hold_s"] == 1
        assert shown.dropped["queue_full"] == 40 - 4 - QUEUE
        held = shown.traffic.held
        wires[0].send(*(Publish("ward/1", b"x", 1, packet_id=n) for n in range(2, 52)))
        for _ in range(50):
            await wires[0].expect(PubAck)
        client = broker.lifecycle.clients["sub"]
        assert broker.operation.observe().traffic.held == held, "nobody waits again for one that was given up"
        assert client.hold_again_at > broker.now() + (RESPITE - 1) * 0.05


@on_loop
async def test_what_comes_from_the_overlay_is_not_dropped_and_its_acknowledgements_wait() -> None:
    number = 3 * QUEUE
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        said: list[int] = []
        for place in range(number):
            broker.local.deliver_local(Publication("ward/1", str(place).encode(), 1))
            broker.local.when_kept(partial(said.append, place))
        assert len(said) == 4 + QUEUE // 2, "of what fits without stretching the queue"
        broker.local.deliver_local(Publication("lab/1", b"nobody's", 1))
        broker.local.when_kept(partial(said.append, -1))
        assert said[-1] == -1, "what no slow receiver gets is acknowledged at once"
        said.pop()
        assert [int(one) for one in await take(sub, number)] == list(range(number))
        await until(lambda: len(said) == number)
        assert said == list(range(number))
        assert dropped(broker) == 0


@on_loop
async def test_a_stuck_receiver_holds_up_the_overlay_for_the_stated_time() -> None:
    async with serving(configured({"hold_s": 0.05})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        said: list[int] = []
        for place in range(3 * QUEUE):
            broker.local.deliver_local(Publication("ward/1", str(place).encode(), 1))
            broker.local.when_kept(partial(said.append, place))
        await until(lambda: len(said) == 3 * QUEUE)
        assert broker.operation.observe().reached["hold_s"] == 1
        broker.local.deliver_local(Publication("ward/1", b"one more", 1))
        assert len(broker.lifecycle.clients["sub"].session.waiting) == QUEUE, "given up: its queue is as long as ever"


@on_loop
async def test_the_queue_does_not_stretch_beyond_its_bound() -> None:
    async with serving(configured({"member_queue_messages": QUEUE})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        for place in range(4 * QUEUE):
            broker.local.deliver_local(Publication("ward/1", str(place).encode(), 1))
        assert len(broker.lifecycle.clients["sub"].session.waiting) == 2 * QUEUE
        assert dropped(broker) == 2 * QUEUE - 4


@on_loop
async def test_a_plugin_that_broadcasts_waits_for_those_who_are_behind() -> None:
    number = 3 * QUEUE
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)

        async def broadcast() -> None:
            for place in range(number):
                await broker.internal_message_broadcast("ward/1", str(place).encode(), 1)

        telling = asyncio.ensure_future(broadcast())
        await until(lambda: broker.exchange.holding.waiting > 0)
        assert len(broker.lifecycle.clients["sub"].session.waiting) == QUEUE // 2 + 1
        assert [int(one) for one in await take(sub, number)] == list(range(number))
        await telling
        assert dropped(broker) == 0


@on_loop
async def test_wills_of_many_that_go_at_once_are_not_dropped() -> None:
    number = 2 * QUEUE
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("gone/#", 1)
        will = Will("gone/1", b"gone", 1)
        wires = [await Wire.connect(broker, f"p{place}", will=will) for place in range(number)]
        for wire in wires:
            wire.cut()
        await until(lambda: len(broker.lifecycle.clients["sub"].session.waiting) == number - 4)
        assert await take(sub, number) == [b"gone"] * number
        assert dropped(broker) == 0


@on_loop
async def test_what_fails_after_it_has_waited_ends_its_connection_and_no_other() -> None:
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        wires = await publishers(broker, 20)
        await until(lambda: broker.exchange.holding.waiting == 20 - 4 - QUEUE // 2)

        def fail() -> None:
            raise RuntimeError("a fault of ours")

        next(iter(broker.exchange.holding.behind.values())).waiting[0].held.go = fail
        await take(sub, 19)
        await until(lambda: len(broker.lifecycle.connections) == len(wires))


@on_loop
async def test_a_receiver_that_goes_lets_everybody_go_on() -> None:
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        wires = await publishers(broker, 40)
        await until(lambda: broker.exchange.holding.waiting > 0)
        sub.cut()
        for wire in wires:
            await wire.expect(PubAck)
        assert not broker.exchange.holding.behind


@on_loop
async def test_two_clients_that_publish_to_each_other_do_not_wait_for_each_other() -> None:
    number = 100
    async with serving(configured()) as broker:
        left, right = await Wire.connect(broker, "left"), await Wire.connect(broker, "right")
        await left.subscribe("to/left", 1)
        await right.subscribe("to/right", 1)

        async def talk(wire: Wire, topic: str) -> None:
            wire.send(*(Publish(topic, b"x", 1, packet_id=n + 1) for n in range(number)))
            answered = taken = 0
            while answered < number or taken < number:
                packet = await wire.next()
                if isinstance(packet, Publish):
                    taken += 1
                    wire.send(PubAck(packet.packet_id))
                else:
                    assert isinstance(packet, PubAck), packet
                    answered += 1

        async with asyncio.TaskGroup() as group:
            group.create_task(talk(left, "to/right"))
            group.create_task(talk(right, "to/left"))
        assert dropped(broker) == 0


@on_loop
async def test_a_client_that_publishes_to_itself_is_not_stopped_by_itself() -> None:
    async with serving(configured({"hold_s": 3_600})) as broker:
        wire = await Wire.connect(broker, "self")
        await wire.subscribe("echo", 1)
        wire.send(*(Publish("echo", b"x", 1, packet_id=n) for n in range(1, 61)))
        answers = 0
        while answers < 60:
            answers += isinstance(await wire.next(), PubAck)


@on_loop
async def test_a_client_that_waits_is_answered_and_keeps_what_it_publishes_behind() -> None:
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        await publishers(broker, 30)
        await until(lambda: broker.exchange.holding.waiting > 0)
        pub = await Wire.connect(broker, "late")
        pub.send(Publish("ward/1", b"late", 1, packet_id=1), Publish("elsewhere", b"", 1, packet_id=2), PingReq())
        await pub.expect(PingResp)
        assert len(await take(sub, 31)) == 31
        assert [(await pub.expect(PubAck)).packet_id for _ in range(2)] == [1, 2]


@pytest.mark.long
@on_loop
async def test_a_waiting_client_that_floods_is_not_read_beyond_a_bound() -> None:
    async with serving(configured({"packet_bytes": 1 << 16})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        await publishers(broker, 30)
        await until(lambda: broker.exchange.holding.waiting > 0)
        flood = await Wire.connect(broker, "flood")
        flood.send(Publish("ward/1", b"", 1, packet_id=1))
        for _ in range(400):
            flood.send(Publish("ward/1", bytes(60_000)))
        connection: Any = broker.lifecycle.clients["flood"].connection
        await until(lambda: connection.is_held)
        assert connection._held.payload_bytes < 4 << 20, "two reads at most beyond the bound"


@pytest.mark.parametrize(("policy", "kept"), [("drop_oldest", range(16, 40)), ("drop_newest", range(24))])
@on_loop
async def test_other_policies_drop_at_once_and_say_so(policy: str, kept: range) -> None:
    async with serving(configured(when_full=policy)) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        pub = await Wire.connect(broker, "pub")
        pub.send(*(Publish("ward/1", str(n).encode(), 1, packet_id=n + 1) for n in range(40)))
        for _ in range(40):
            await pub.expect(PubAck)
        assert dropped(broker) == 16
        expected = [0, 1, 2, 3, *range(20, 40)] if policy == "drop_oldest" else list(kept)
        assert [int(one) for one in await take(sub, 24)] == expected


@on_loop
async def test_bounds_and_policy_are_those_of_the_receivers_listener() -> None:
    listeners = {
        "default": {"bind": "127.0.0.1:0"},
        "fast": {"bind": "127.0.0.1:0", "when_full": "drop_newest", "queue_messages": 5},
    }
    async with serving({"listeners": listeners, "limits": LIMITS}) as broker:
        sub = await Wire.connect(broker, "sub", listener="fast")
        await sub.subscribe("ward/#", 1)
        pub = await Wire.connect(broker, "pub")
        pub.send(*(Publish("ward/1", str(n).encode(), 1, packet_id=n + 1) for n in range(20)))
        for _ in range(20):
            await pub.expect(PubAck)
        assert [int(one) for one in await take(sub, 9)] == list(range(9))


@on_loop
async def test_a_shared_group_prefers_members_that_are_not_behind() -> None:
    async with serving(configured()) as broker:
        slow, fast = await Wire.connect(broker, "slow"), await Wire.connect(broker, "fast")
        await slow.subscribe("$share/g/ward/#", 1)
        await fast.subscribe("$share/g/ward/#", 1)
        pub = await Wire.connect(broker, "pub")
        pub.send(*(Publish("ward/1", b"", 1, packet_id=n) for n in range(1, 101)))
        assert len(await take(fast, 100 - 4 - QUEUE // 2)) == 100 - 4 - QUEUE // 2
        for _ in range(100):
            await pub.expect(PubAck)
        assert dropped(broker) == 0


@on_loop
async def test_twenty_thousand_retained_messages_come_to_one_that_reads() -> None:
    number = 300
    async with serving(configured()) as broker:
        pub = await Wire.connect(broker, "pub")
        for n in range(number):
            pub.send(Publish(f"ward/{n}", b"x", 1, retain=True, packet_id=n + 1))
            await pub.expect(PubAck)
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        assert len(await take(sub, number)) == number
        assert dropped(broker) == 0


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="when_full"):
        parse({"listeners": {"default": {"when_full": "never"}}})
