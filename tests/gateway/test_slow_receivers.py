"""Receivers that are slow, stuck, drip or come back: who waits for them, for how long, and that nothing is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin
from amqtt.session import Session

from bridge.contract import Publication
from gateway.broker.edge_broker import EdgeBroker
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import PubAck, Publish
from tests.gateway.broker.test_holding import QUEUE, configured, dropped, publishers, take
from tests.gateway.harness import Leap, Wire, on_loop, serving
from tests.waits import until


class Passing(Leap):
    """Both clocks of a broker: that of its timers, and the one that it tells messages by."""

    def __init__(self, broker: EdgeBroker) -> None:
        super().__init__()
        self.broker = broker

    async def by(self, seconds: float) -> None:
        self.broker._started_at += seconds
        await super().by(seconds)


STAYS = {"session_expiry_s": 3_600}
WINDOW = 30
LONG: dict[str, Any] = {"hold_s": 1_000, "in_flight": WINDOW}
HOLD_S = LONG["hold_s"]
"""Beside it, what a busy machine takes for a test is nothing."""


async def a_line(broker: EdgeBroker, number: int) -> tuple[Wire, list[Wire], Passing]:
    """A receiver, and so many publishers with one message each for it: those wait that its window and half its queue
    have no room for."""
    sub = await Wire.connect(broker, "sub")
    await sub.subscribe("ward/#", 1)
    wires = await publishers(broker, number)
    await until(lambda: broker.exchange.holding.waiting == number - WINDOW - QUEUE // 2)
    return sub, wires, Passing(broker)


async def read(broker: EdgeBroker, sub: Wire, number: int) -> list[bytes]:
    """Take so many, and go on when the broker knows."""
    figures = broker.lifecycle.clients["sub"].session.figures
    before = figures.delivered
    taken = await take(sub, number)
    await until(lambda: figures.delivered == before + number, 10)
    return taken


async def read_as_the_timer_is_due(broker: EdgeBroker, sub: Wire, client_id: str) -> None:
    """One acknowledgement is read in the turn of the loop in which the receiver is given up."""
    holding = broker.exchange.holding
    behind, heard = holding.behind[broker.lifecycle.clients[client_id]], holding.note_read

    def and_then_the_timer(*arguments: Any) -> None:
        heard(*arguments)
        holding.note_read = heard  # type: ignore[method-assign]
        broker._started_at += 1.1 * HOLD_S
        assert behind.timer is not None
        behind.timer.cancel()
        holding._review_receiver(behind)

    holding.note_read = and_then_the_timer  # type: ignore[method-assign, assignment]
    sub.send(PubAck((await sub.expect(Publish)).packet_id))


def given_up(broker: EdgeBroker) -> bool:
    return bool(broker.operation.observe().reached["hold_s"])


@on_loop
async def test_a_receiver_that_reads_is_not_given_up_however_long_it_takes_for_those_who_wait() -> None:
    async with serving(configured(LONG)) as broker:
        sub, wires, time = await a_line(broker, 4 * WINDOW)
        for _ in range(2):
            await time.by(0.9 * HOLD_S)
            assert len(await read(broker, sub, WINDOW)) == WINDOW
        await time.by(0.9 * HOLD_S)
        assert broker.exchange.holding.waiting
        assert not given_up(broker)
        await take(sub, 2 * WINDOW)
        for wire in wires:
            await wire.expect(PubAck)
        assert not given_up(broker)
        assert dropped(broker) == 0


@on_loop
async def test_what_the_overlay_brings_to_one_that_reads_is_not_dropped_and_others_wait_briefly() -> None:
    """The gateway's other clients are behind what it does not acknowledge."""
    async with serving(configured(LONG)) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        time, said, number = Passing(broker), list[int](), 4 * WINDOW

        def bring(places: range) -> None:
            for place in places:
                broker.local.deliver_local(Publication("ward/1", str(place).encode(), 1))
                broker.local.when_kept(partial(said.append, place))

        bring(range(number))
        taken: list[bytes] = []
        await time.by(0.9 * HOLD_S)
        taken += await read(broker, sub, WINDOW)
        assert len(said) < number
        await time.by(0.2 * HOLD_S)
        await until(lambda: len(said) == number)
        bring(range(number, 2 * number))
        assert len(said) == 2 * number
        for _ in range(2):
            await time.by(0.9 * HOLD_S)
            taken += await read(broker, sub, WINDOW)
        taken += await take(sub, 2 * number - 3 * WINDOW)
        assert [int(one) for one in taken] == list(range(2 * number))
        assert not given_up(broker)
        assert dropped(broker) == 0
        await until(lambda: not broker.lifecycle.clients["sub"].session.outbound.in_flight)
        bring(range(number))
        assert len(said) == 2 * number + WINDOW + QUEUE // 2, "it has caught up, and is waited for again"


@on_loop
async def test_what_waits_for_a_receiver_lives_no_longer_for_it() -> None:
    """Its interval began when it came, not when it was routed."""
    async with serving(configured(LONG)) as broker:
        sub, _, time = await a_line(broker, WINDOW + QUEUE)
        late = await Wire.connect(broker, "late")
        waiting = broker.exchange.holding.waiting
        late.publish("ward/1", b"late", 1, properties={"message_expiry_s": 500})
        await until(lambda: broker.exchange.holding.waiting == waiting + 1)
        await time.by(0.4 * HOLD_S)
        await take(sub, WINDOW + QUEUE)
        last = await sub.expect(Publish)
        assert last.payload == b"late"
        assert last.properties.message_expiry_s is not None
        assert last.properties.message_expiry_s <= 100


@on_loop
async def test_a_receiver_that_drips_is_given_up_as_one_that_is_stuck() -> None:
    """One acknowledgement now and then must not hold up publishers for ever."""
    async with serving(configured(LONG)) as broker:
        sub, wires, time = await a_line(broker, 3 * WINDOW)
        await time.by(0.5 * HOLD_S)
        await read(broker, sub, WINDOW - 1)
        await time.by(0.4 * HOLD_S)
        assert not given_up(broker)
        await time.by(0.2 * HOLD_S)
        await until(lambda: given_up(broker))
        for wire in wires:
            await wire.expect(PubAck)


@on_loop
async def test_a_receiver_that_stops_reading_is_given_up_after_the_stated_time() -> None:
    async with serving(configured(LONG)) as broker:
        sub, _, time = await a_line(broker, 3 * WINDOW)
        await time.by(0.9 * HOLD_S)
        await read(broker, sub, WINDOW)
        await time.by(0.9 * HOLD_S)
        assert not given_up(broker)
        await time.by(0.2 * HOLD_S)
        await until(lambda: given_up(broker))


LARGE = 1 << 17
EIGHT_LARGE = {"packet_bytes": 2 * LARGE, "queue_bytes": 8 * LARGE}


@pytest.mark.parametrize("by_overlay", [False, True])
@on_loop
async def test_large_messages_in_flight_fill_the_queue_as_those_that_wait(by_overlay: bool) -> None:
    number = 40
    async with serving(configured({"in_flight": 100, **EIGHT_LARGE})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        if by_overlay:
            for _ in range(number):
                broker.local.deliver_local(Publication("ward/1", bytes(LARGE), 1))
        else:
            await publishers(broker, number, payload=bytes(LARGE))
            await until(lambda: broker.exchange.holding.waiting == number - 4)
        assert len(await take(sub, number)) == number
        assert dropped(broker) == 0


@on_loop
async def test_half_a_queue_of_bytes_is_as_much_as_a_window_of_messages() -> None:
    """All that it is sent before it acknowledges something."""
    async with serving(configured({**LONG, **EIGHT_LARGE})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        await publishers(broker, WINDOW, payload=bytes(LARGE))
        await until(lambda: broker.exchange.holding.waiting == WINDOW - 4)
        time = Passing(broker)
        for _ in range(2):
            await time.by(0.9 * HOLD_S)
            await read(broker, sub, 4)
        await time.by(0.9 * HOLD_S)
        assert broker.exchange.holding.waiting == WINDOW - 12
        assert not given_up(broker)


@on_loop
async def test_a_slow_receiver_that_nobody_waits_for_long_is_notgiven_up() -> None:
    """One publisher goes at the pace of its receiver, however slow that is."""
    async with serving(configured(LONG)) as broker:
        sub, (*_, last), time = await a_line(broker, WINDOW + QUEUE // 2 + 1)
        for packet_id in range(2, 6):
            await time.by(0.9 * HOLD_S)
            await take(sub, 1)
            await last.expect(PubAck)
            last.send(Publish("ward/1", b"more", 1, packet_id=packet_id))
            await until(lambda: broker.exchange.holding.waiting == 1)
        assert not given_up(broker)


@on_loop
async def test_a_plugin_that_stops_waiting_takes_no_turn_of_others() -> None:
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        for n in range(4 + QUEUE // 2):
            await broker.internal_message_broadcast("ward/1", str(n).encode(), 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.internal_message_broadcast("ward/1", b"p", 1), 0.05)
        wires = await publishers(broker, 5)
        await until(lambda: broker.exchange.holding.waiting == 5)
        await take(sub, 4 + QUEUE // 2 + 1 + 5)
        for wire in wires:
            await wire.expect(PubAck)
        await until(lambda: not broker.exchange.holding.behind, 3)


@on_loop
async def test_who_has_waited_for_one_that_connects_anew_does_not_wait_again() -> None:
    async with serving(configured({**LONG, **EIGHT_LARGE})) as broker:
        sub = await Wire.connect(broker, "sub", properties=STAYS)
        await sub.subscribe("ward/#", 1)
        wires = await publishers(broker, 12, payload=bytes(LARGE))
        await until(lambda: broker.exchange.holding.waiting == 8)
        await Passing(broker).by(0.9 * HOLD_S)
        sub = await Wire.connect(broker, "sub", clean_start=False, properties=STAYS)
        for wire in wires:
            await wire.expect(PubAck)
        assert len(await take(sub, 12)) == 12
        assert dropped(broker) == 0


@on_loop
async def test_one_that_is_given_up_while_turns_are_put_back_loses_none() -> None:
    async with serving(configured({**LONG, **EIGHT_LARGE})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        wires = await publishers(broker, 7, payload=bytes(LARGE))
        await until(lambda: broker.exchange.holding.waiting == 3)
        await read_as_the_timer_is_due(broker, sub, "sub")
        for wire in wires:
            await wire.expect(PubAck)


@on_loop
async def test_a_queue_of_one_message_lets_one_in_at_a_time() -> None:
    async with serving(configured({"queue_messages": 1, "hold_s": 1})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        await publishers(broker, 12)
        assert len(await take(sub, 12)) == 12
        assert not given_up(broker)
        assert dropped(broker) == 0


@on_loop
async def test_what_expires_while_the_buffer_is_full_leaves_room() -> None:
    async with serving(configured(LONG | {"in_flight": 4})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        client = broker.lifecycle.clients["sub"]
        connection: Any = client.connection
        connection.pause_writing()
        wires = [await Wire.connect(broker, f"p{n}") for n in range(12)]
        for n, wire in enumerate(wires):
            wire.publish("ward/1", b"x", 1, properties={"message_expiry_s": 5} if n < 10 else {})
            if n < 10:
                await wire.expect(PubAck)
        await until(lambda: broker.exchange.holding.waiting == 2)
        time = Passing(broker)
        await time.by(6)
        connection.resume_writing()
        assert not client.session.has_work
        for wire in wires[10:]:
            await wire.expect(PubAck)


@on_loop
async def test_a_stretched_queue_survives_a_reconnect() -> None:
    async with serving(configured()) as broker:
        sub = await Wire.connect(broker, "sub", properties=STAYS)
        await sub.subscribe("ward/#", 1)
        for n in range(3 * QUEUE):
            broker.local.deliver_local(Publication("ward/1", str(n).encode(), 1))
        sub = await Wire.connect(broker, "sub", clean_start=False, properties=STAYS)
        broker.local.deliver_local(Publication("ward/1", b"more", 1))
        sub.send(Publish("ward/1", b"its own", 1, packet_id=1))
        await sub.barrier()
        assert len(broker.lifecycle.clients["sub"].session.waiting) == 3 * QUEUE + 2 - 4
        assert dropped(broker) == 0


@pytest.mark.parametrize("expires", [False, True])
@on_loop
async def test_expiry_beside_large_messages_does_not_hide_the_pace(expires: bool) -> None:
    async with serving(configured({**LONG, **EIGHT_LARGE})) as broker:
        sub = await Wire.connect(broker, "sub", properties={"receive_maximum": 1})
        await sub.subscribe("ward/#", 1)
        for _ in range(30):
            broker.exchange.inject(Message("ward/1", bytes(LARGE), 1))
            broker.exchange.inject(Message("ward/1", b"", 1, expires_at=broker.now() + 1 if expires else None))
        pub = await Wire.connect(broker, "pub")
        pub.send(Publish("ward/1", b"", 1, packet_id=1))
        await until(lambda: broker.exchange.holding.waiting == 1)
        time = Passing(broker)
        for _ in range(2):
            await time.by(0.9 * HOLD_S)
            await read(broker, sub, 9 if expires else 18)
        assert not given_up(broker)


class Asks(BaseTopicPlugin):  # type: ignore[misc]
    """Has to be asked each time, and takes a while."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        await asyncio.sleep(0)
        return True


@on_loop
async def test_a_plugin_that_is_asked_about_receivers_breaks_no_promise() -> None:
    number = 60
    config = configured(LONG | {"in_flight": 4}) | {"plugins": {f"{__name__}.Asks": {}}}
    async with serving(config) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        wires = [await Wire.connect(broker, f"p{place}") for place in range(number)]
        for place, wire in enumerate(wires):
            wire.send(Publish(f"ward/{place}", b"x", 1, packet_id=1))
        assert len(await take(sub, number)) == number
        assert dropped(broker) == 0


@on_loop
async def test_who_may_not_receive_a_publication_does_not_hold_it_up() -> None:
    acl = {"gateway.auth.acl_file.AclPlugin": {"receive_acl": {"*": ["mine"]}}}
    async with serving(configured(LONG | {"in_flight": 4}) | {"plugins": acl}) as broker:
        sub, pub = await Wire.connect(broker, "sub"), await Wire.connect(broker, "pub")
        await sub.subscribe("#", 1)
        for number in range(1, 30):
            pub.send(Publish("mine", b"x", 1, packet_id=number))
        await until(lambda: broker.exchange.holding.waiting == 1)
        other = await Wire.connect(broker, "other")
        other.send(Publish("ward/1", b"x", 1, packet_id=1))
        await other.expect(PubAck)


@on_loop
async def test_nobody_is_given_up_for_one_that_waits_no_longer() -> None:
    async with serving(configured(LONG | {"in_flight": 4})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        for place in range(4 + QUEUE // 2):
            await broker.internal_message_broadcast("ward/1", str(place).encode(), 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.internal_message_broadcast("ward/1", b"p", 1), 0.05)
        await Passing(broker).by(1.1 * HOLD_S)
        assert not given_up(broker)


@on_loop
async def test_who_publishes_to_itself_has_no_more_than_its_queue() -> None:
    async with serving(configured(LONG | {"in_flight": 4})) as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("ward/#", 1)
        await publishers(broker, 4 + QUEUE // 2 + 1)
        await until(lambda: broker.exchange.holding.waiting == 1)
        await take(sub, 1)
        await until(lambda: broker.exchange.holding.waiting == 0)
        sub.send(*(Publish("ward/1", b"own", 1, packet_id=number) for number in range(1, 201)))
        figures = broker.lifecycle.clients["sub"].session.figures
        await until(lambda: figures.dropped_queue_full >= 200 - QUEUE)
        assert len(broker.lifecycle.clients["sub"].session.waiting) == QUEUE
