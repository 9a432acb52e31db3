"""Several receivers that one publication waits for: one after another, as members of a group, or for the overlay."""

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
from gateway.mqtt5.packets import PubAck, Publish
from tests.gateway.broker.test_holding import QUEUE, configured, publishers, take
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_slow_receivers import (
    EIGHT_LARGE,
    HOLD_S,
    LARGE,
    LONG,
    WINDOW,
    Passing,
    given_up,
    read_as_the_timer_is_due,
)
from tests.waits import until


async def _group(broker: EdgeBroker) -> tuple[Wire, Wire]:
    a, b = await Wire.connect(broker, "a"), await Wire.connect(broker, "b")
    for sub in (a, b):
        await sub.subscribe("$share/g/ward/#", 1)
    return a, b


@on_loop
async def test_one_that_reads_loses_nothing_because_another_is_stuck() -> None:
    number = 60
    async with serving(configured(LONG | {"in_flight": 4})) as broker:
        names = ("reads", "stuck")
        subs = {name: await Wire.connect(broker, name) for name in names}
        for name in names:
            await subs[name].subscribe("ward/#", 1)
        wires = await publishers(broker, number)
        await until(lambda: broker.exchange.holding.waiting == number - 14)
        order = [t.client.client_id for t in broker.exchange.delivery.router.plan("ward/1").targets]
        first, last = subs[order[0]], broker.lifecycle.clients[order[1]]
        await take(first, 14)  # all that it was given
        await until(lambda: len(broker.exchange.holding.behind[last].waiting) == number - 14)
        await Passing(broker).by(1.1 * HOLD_S)  # the other is given up
        for wire in wires:
            await wire.expect(PubAck)
        await take(first, number - 14)
        assert broker.lifecycle.clients[order[0]].session.figures.dropped_queue_full == 0


@on_loop
async def test_what_another_member_took_no_longer_waits() -> None:
    async with serving(configured(LONG | {"in_flight": 4})) as broker:
        slow, fast = await Wire.connect(broker, "slow"), await Wire.connect(broker, "fast")
        for sub in (slow, fast):
            await sub.subscribe("$share/g/ward/#", 1)
        wires = await publishers(broker, 2 * 14 + 5)
        await until(lambda: len(broker.exchange.holding.behind) == 2)
        await until(lambda: broker.exchange.holding.waiting == 10)
        await take(fast, 14 + 5)
        for wire in wires:
            await wire.expect(PubAck)
        time = Passing(broker)
        await time.by(1.1 * HOLD_S)
        assert not given_up(broker), "nothing waited for it"


@on_loop
async def test_several_that_are_stuck_cost_the_overlay_the_stated_time_once() -> None:
    async with serving(configured(LONG | {"in_flight": 4})) as broker:
        for place in range(3):
            sub = await Wire.connect(broker, f"s{place}")
            await sub.subscribe("ward/#", 1)
        said: list[int] = []
        for place in range(20):
            broker.local.deliver_local(Publication("ward/1", b"x", 1))
            broker.local.when_kept(partial(said.append, place))
        assert len(said) < 20
        await Passing(broker).by(1.01 * HOLD_S)
        await until(lambda: len(said) == 20)


class Permits(BaseTopicPlugin):  # type: ignore[misc]
    """Everything that is not remembered otherwise."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        return True


@pytest.mark.parametrize("both_behind", [False, True])
@on_loop
async def test_a_member_that_may_not_receive_lets_nobody_pass(both_behind: bool) -> None:
    plugins: dict[str, Any] = {f"{__name__}.Permits": {}}
    async with serving(configured(LONG | {"in_flight": 4}) | {"plugins": plugins}) as broker:
        _, b = await _group(broker)
        await b.subscribe("b", 1)
        clients = broker.lifecycle.clients
        for name, may in (("a", True), ("b", False)):
            clients[name].view.remember("ward/1", Action.RECEIVE, may)
        if both_behind:
            clients["b"].view.remember("b", Action.RECEIVE, True)
            await publishers(broker, 14, "b")
            await until(lambda: len(broker.exchange.holding.behind) == 1)
        await publishers(broker, 60, names="q")
        await until(lambda: broker.exchange.holding.waiting == 60 - 4 - QUEUE // 2)
        assert len(clients["a"].session.waiting) == QUEUE // 2


@on_loop
async def test_the_overlay_waits_briefly_for_one_that_is_behind_anew() -> None:
    async with serving(configured(LONG)) as broker:
        subs = {name: await Wire.connect(broker, name) for name in "ab"}
        for name, sub in subs.items():
            await sub.subscribe("ward/#", 1)
            await sub.subscribe(name, 1)
        said: list[int] = []
        number, lines = WINDOW + QUEUE // 2 + 1, 5 * WINDOW
        for place in range(number):
            broker.local.deliver_local(Publication("ward/1", b"x", 1))
            broker.local.when_kept(partial(said.append, place))
        holding, clients = broker.exchange.holding, broker.lifecycle.clients
        first = next(client.client_id for client, one in holding.behind.items() if one.waiting)
        other = "ab".replace(first, "")
        time = Passing(broker)
        await take(subs[other], number)
        await until(lambda: clients[other] not in holding.behind)
        await publishers(broker, lines + WINDOW + QUEUE // 2, other)
        await until(lambda: holding.waiting >= lines)
        await time.by(0.5 * HOLD_S)
        await take(subs[other], WINDOW)
        await take(subs[first], number)
        await until(lambda: clients[first] not in holding.behind)
        assert len(said) < number
        await time.by(0.6 * HOLD_S)
        await until(lambda: len(said) == number)
        assert not given_up(broker)


class Slow(Permits):
    """Takes its time for one topic."""

    go: asyncio.Event

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        if action == Action.RECEIVE and topic == "ward/1":
            await Slow.go.wait()
        return True


@on_loop
async def test_given_up_while_put_back_of_a_group_comes_once() -> None:
    Slow.go = asyncio.Event()
    async with serving(configured({**LONG, **EIGHT_LARGE}) | {"plugins": {f"{__name__}.Slow": {}}}) as broker:
        a, b = await _group(broker)
        await a.subscribe("a", 1)
        await b.subscribe("b", 1)
        view = {n: broker.lifecycle.clients[n].view for n in "ab"}
        for n in "ab":
            view[n].remember(n, Action.RECEIVE, True)
        for topic, number in (("b", 4), ("a", 5)):
            await publishers(broker, number, topic, payload=bytes(LARGE), names=topic)
        holding = broker.exchange.holding
        await until(lambda: holding.waiting == 1 and len(holding.behind) == 2)
        wires = [await Wire.connect(broker, f"w{place}") for place in range(2)]
        for place, wire in enumerate(wires):
            wire.send(Publish("ward/1", str(place).encode(), 1, packet_id=1))
            await until(partial(lambda known: holding.waiting == known, 3 + 2 * place))
        await read_as_the_timer_is_due(broker, a, "a")
        await until(lambda: broker.lifecycle.clients["a"] not in holding.behind)
        b.send(PubAck((await b.expect(Publish)).packet_id))
        await b.barrier()
        Slow.go.set()
        for wire in wires:
            await wire.expect(PubAck)
        came = [packet for sub in (a, b) for packet in await sub.barrier() if isinstance(packet, Publish)]
        assert sorted(packet.payload for packet in came if packet.topic == "ward/1") == [b"0", b"1"]


@on_loop
async def test_a_stuck_member_keeps_nothing_of_what_another_took() -> None:
    async with serving(configured(LONG | {"in_flight": 4})) as broker:
        _, fast = await _group(broker)
        wires = await publishers(broker, 2 * 14 + 5)
        await until(lambda: broker.exchange.holding.waiting == 10)

        async def publish(wire: Wire) -> None:
            await wire.expect(PubAck)
            for packet_id in range(2, 60):
                wire.send(Publish("ward/1", b"again", 1, packet_id=packet_id))
                await wire.expect(PubAck)

        reading = asyncio.ensure_future(take(fast, 1_000_000))
        await asyncio.gather(*map(publish, wires))
        reading.cancel()
        lines = [len(one.waiting) for one in broker.exchange.holding.behind.values()]
        assert max(lines, default=0) <= len(wires)
