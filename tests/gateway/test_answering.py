"""The short way of what entities answer: the same outcome as the long one, and no way around any rule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin
from amqtt.session import Session

from bridge.traces.tracer import BOGUS_MAX, Say
from bridge.tracking.entity import BrokerConnected, Listen, Stage, Told, TracedEffect, Wishes
from gateway.broker.edge_broker import EdgeBroker
from gateway.mqtt5.packets import Disconnect, PubAck, Publish, Subscribe, Subscription
from gateway.mqtt5.types import ReasonCode
from gateway.tracing.broker_tracing import Tracing
from tests.bench.fleet import entities
from tests.gateway.harness import Wire
from tests.gateway.traced_site import Site

NAME = "pump-0"
SPEAKS = "$Constrained/Traces/Broker/SubscribeOnly/Suppress/"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def traced(broker: EdgeBroker) -> int:
    """Entities that are."""
    tracing = broker.exchange.tracing
    assert isinstance(tracing, Tracing)
    return len(tracing)


class Pump:
    """A traced entity whose messages the test sends as it likes."""

    def __init__(self, site: Site, wire: Wire) -> None:
        (self.entity,) = entities(site.domain, site.gateway, 1, Wishes(("desk",)))
        self.wire = wire

    @classmethod
    async def traced(cls, site: Site, broker: EdgeBroker) -> Pump:
        pump = cls(site, await Wire.connect(broker, NAME))
        pump.perform(pump.entity.handle(BrokerConnected(), time.time()))
        while pump.entity.stage is not Stage.TRACED:
            packet = await pump.wire.next()
            if isinstance(packet, Publish):
                pump.perform(pump.entity.handle(Told(packet.topic, packet.payload), time.time()))
        await pump.wire.barrier()
        return pump

    def perform(self, effects: Iterable[TracedEffect]) -> None:
        for effect in effects:
            match effect:
                case Say(topic, payload, qos):
                    self.wire.publish(topic, payload, qos)
                case Listen(topic):
                    self.wire.send(Subscribe(self.wire.new_id(), (Subscription(topic, 1),)))

    async def answer(self) -> Say:
        """To the next ping; not sent."""
        while True:
            packet = await self.wire.next()
            assert packet is not None, "closed"
            if isinstance(packet, Publish) and not packet.qos:
                (said,) = self.entity.handle(Told(packet.topic, packet.payload), time.time())
                assert isinstance(said, Say)
                assert said.topic.startswith(SPEAKS)
                return said

    def last_word(self) -> Say:
        """After which the broker forgets it; not sent."""
        (said,) = self.entity.silent()
        assert isinstance(said, Say)
        return said


@pytest.mark.parametrize(
    ("spelled", "how"),
    [
        ("$", {}),
        ("$", {"qos": 1}),
        ("$", {"retain": True}),
        ("$", {"properties": {"user": (("a", "b"),)}}),
        ("$", {"properties": {"topic_alias": 1}}),
        ("/", {}),
        ("", {}),
    ],
)
def test_what_an_entity_says_is_heard_whichever_way_it_comes(site: Site, spelled: str, how: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            pump = await Pump.traced(site, broker)
            everybody = await Wire.connect(broker, "everybody")
            for topic_filter in ("#", "+/Constrained/#"):
                assert await everybody.subscribe(topic_filter) == 0
            said = pump.last_word()
            assert traced(broker) == 1
            pump.wire.publish(said.topic.replace("$", spelled), said.payload, **how)
            await pump.wire.barrier()
            assert traced(broker) == 0
            assert await everybody.published() == []
            assert list(broker.exchange.retained.matching("#", time.time())) == []
            assert "traces_refused" not in site.counted

    asyncio.run(scenario())


@pytest.mark.parametrize("qos", [0, 1])
def test_who_speaks_in_another_ones_session_is_refused_and_sent_away(site: Site, qos: int) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            pump = await Pump.traced(site, broker)
            answer = await pump.answer()
            pump.perform([answer])
            await pump.wire.barrier()
            forger = await Wire.connect(broker, "forger")
            changed = answer.payload[:-1] + bytes([answer.payload[-1] ^ 1])
            bogus = [answer.payload, changed, b"", b"noise"]  # first a replay
            for number in range(BOGUS_MAX):
                forger.publish(answer.topic, bogus[number % len(bogus)], qos=qos)
            *before, last = await forger.closed()
            assert isinstance(last, Disconnect)
            assert last.code == ReasonCode.ADMINISTRATIVE_ACTION
            assert all(isinstance(packet, PubAck) for packet in before)
            assert site.counted["traces_refused"] == BOGUS_MAX
            pump.perform([await pump.answer()])
            await pump.wire.barrier()
            assert site.counted["traces_refused"] == BOGUS_MAX, "the entity goes on"

    asyncio.run(scenario())


def test_the_name_of_a_session_that_is_over_is_no_way_in(site: Site) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            pump = await Pump.traced(site, broker)
            answer, last = await pump.answer(), pump.last_word()
            pump.perform([last])
            pump.wire.publish(answer.topic, answer.payload)
            await pump.wire.barrier()
            assert site.counted["traces_refused"] == 1

    asyncio.run(scenario())


class Forbids(BaseTopicPlugin):  # type: ignore[misc]
    """An operator's rule."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        is_word = topic is not None and topic.startswith(SPEAKS) and not topic.endswith("Registration")
        return action is not Action.PUBLISH or not is_word


def test_rules_of_plugins_count_for_what_entities_say(site: Site) -> None:
    async def scenario() -> None:
        plugins: dict[str, Any] = {f"{__name__}.Forbids": {}, "amqtt.plugins.authentication.AnonymousAuthPlugin": {}}
        async with site.serving(plugins=plugins) as broker:
            pump = await Pump.traced(site, broker)
            said = pump.last_word()
            for qos in (0, 1):
                pump.wire.publish(said.topic, said.payload, qos=qos)
            await pump.wire.barrier()
            assert traced(broker) == 1, "nothing that it says is heard"

    asyncio.run(scenario())
