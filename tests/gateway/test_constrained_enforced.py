"""Constrained topics where clients name them: attacks on trace topics by every way to publish or subscribe."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin
from amqtt.session import Session

from bridge.traces.kinds import REGISTRATION_TOPIC, Interest, answers_to, trace_topic
from bridge.traces.tracer import BOGUS_MAX
from gateway.mqtt5.packets import Disconnect, PubAck, Publish, Unsubscribe, Version, Will
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving
from tests.gateway.traced_site import Site

DENIED = ReasonCode.NOT_AUTHORIZED
TOPIC = trace_topic(bytes(range(16)), Interest.CHANGES)
OWN = "$Constrained/Alarms/pump/PublishOnly/Disseminate/cellar"


@pytest.mark.parametrize(
    "spelling",
    [
        TOPIC,
        TOPIC.replace("$Constrained", "/Constrained"),
        TOPIC.replace("$Constrained", "Constrained"),
        TOPIC.replace("PublishOnly/Disseminate", "Publish-Only"),
    ],
)
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_nobody_but_the_broker_publishes_traces(site: Site, spelling: str, version: Version) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            tracker = await Wire.connect(broker, "desk")
            assert await tracker.subscribe(TOPIC, 1) == 1
            everything = await Wire.connect(broker, "all")
            assert await everything.subscribe("#", 1) == 1
            assert await everything.subscribe("+/Constrained/#", 1) == 1
            forger = await Wire.connect(broker, "forger", version)
            forger.publish(spelling, b"FAILED")
            forger.publish(spelling, b"FAILED", retain=True)
            forger.publish(spelling, b"FAILED", qos=1)
            ack = await forger.expect(PubAck)
            assert version < Version.V5 or ack.code == DENIED
            assert await tracker.published() == await everything.published() == []
            late = await Wire.connect(broker, "late")
            assert await late.subscribe(TOPIC, 1) == 1
            assert await late.published() == [], "nothing was retained"

    asyncio.run(scenario())


def test_a_topic_alias_is_no_way_around(site: Site) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            tracker = await Wire.connect(broker, "desk")
            assert await tracker.subscribe(TOPIC, 1) == 1
            forger = await Wire.connect(broker, "forger")
            forger.publish(TOPIC, b"FAILED", qos=1, properties={"topic_alias": 3})
            forger.publish("", b"FAILED", qos=1, properties={"topic_alias": 3})
            assert [(await forger.expect(PubAck)).code for _ in range(2)] == [DENIED, DENIED]
            assert await tracker.published() == []

    asyncio.run(scenario())


def test_a_will_is_no_way_around(site: Site) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            tracker = await Wire.connect(broker, "desk")
            for topic in (TOPIC, OWN):
                assert await tracker.subscribe(topic, 1) == 1
            for name, topic in (("forger", TOPIC), ("forger", OWN), ("pump", OWN.replace("$", "/", 1))):
                client = await Wire.connect(broker, name, will=Will(topic, f"by {name}".encode()))
                client.send(Disconnect(0x04))
                assert await client.closed() == []
            assert await tracker.published() == [(OWN, b"by pump")], "what it may, in the routed spelling"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "topic_filter",
    [
        "$Constrained/#",
        "$Constrained/+/#",
        "/Constrained/#",
        "$Constrained/Traces/Broker/PublishOnly/Disseminate/#",
        "$Constrained/Traces/Broker/PublishOnly/Disseminate/+/ChangeNotifications",
        "$Constrained/Traces/Broker/+/Disseminate/+/#",
        "$share/thieves/$Constrained/Traces/Broker/PublishOnly/Disseminate/#",
        "$share/thieves//Constrained/Traces/pump/SubscribeOnly/Suppress/Answers",
        REGISTRATION_TOPIC,
        REGISTRATION_TOPIC.replace("$", ""),
        answers_to("pump"),
        answers_to("+"),
    ],
)
def test_what_a_client_may_not_hear_is_refused(site: Site, topic_filter: str) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            thief = await Wire.connect(broker, "thief")
            assert await thief.subscribe(topic_filter) == DENIED

    asyncio.run(scenario())


def test_a_client_hears_what_is_its_own_in_any_spelling_and_leaves_in_any(site: Site) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            pump, other = await Wire.connect(broker, "pump"), await Wire.connect(broker, "other")
            mine = answers_to("pump")
            assert await pump.subscribe(mine.replace("$", "/"), 1) == 1
            assert await pump.subscribe(f"$share/g/{OWN.replace('$', '')}", 1) == 1
            other.publish(mine, b"for you", qos=1)
            pump.publish(OWN.replace("Disseminate/", ""), b"high water")
            await other.expect(PubAck)
            assert sorted(await pump.published()) == sorted([(mine, b"for you"), (OWN, b"high water")])
            pump.send(Unsubscribe(pump.new_id(), (mine.replace("$", ""),)))
            await pump.barrier()
            other.publish(mine, b"gone", qos=1)
            await other.expect(PubAck)
            assert await pump.published() == []

    asyncio.run(scenario())


def test_a_spelling_that_grows_too_long_is_refused_before_it_is_routed(site: Site) -> None:
    async def scenario() -> None:
        async with site.serving(limits={"topic_bytes": 65_535}) as broker:
            pump = await Wire.connect(broker, "pump")
            tracker = await Wire.connect(broker, "desk")
            assert await tracker.subscribe("$Constrained/Alarms/pump/PublishOnly/s/#", 1) == 1
            start = "Constrained/Alarms/pump/PublishOnly/s/"
            pump.publish(start + "x" * (65_535 - len(start)), qos=1)
            assert (await pump.expect(PubAck)).code == DENIED
            assert await tracker.published() == []

    asyncio.run(scenario())


class Forbids(BaseTopicPlugin):  # type: ignore[misc]
    """An operator's rule, written for the one spelling that is routed."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        return topic is None or not topic.startswith("$Constrained/Alarms")


def test_rules_of_plugins_see_the_routed_spelling(site: Site) -> None:
    async def scenario() -> None:
        plugins: dict[str, Any] = {f"{__name__}.Forbids": {}, "amqtt.plugins.authentication.AnonymousAuthPlugin": {}}
        async with site.serving(plugins=plugins) as broker:
            pump = await Wire.connect(broker, "pump")
            pump.publish("/" + OWN[1:], qos=1)
            assert (await pump.expect(PubAck)).code == DENIED
            assert await pump.subscribe("/" + OWN[1:]) == DENIED
            pump.publish("plain", qos=1)
            assert (await pump.expect(PubAck)).code != DENIED

    asyncio.run(scenario())


def test_a_client_that_keeps_sending_what_does_not_hold_is_sent_away(site: Site) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            noise, calm = await Wire.connect(broker, "noise"), await Wire.connect(broker, "calm")
            for number in range(BOGUS_MAX - 1):
                noise.publish(REGISTRATION_TOPIC, b"noise %d" % number, qos=number % 2)
            assert {type(packet) for packet in await noise.barrier()} == {PubAck}
            noise.publish(REGISTRATION_TOPIC, b"the last", qos=1)
            [*_, last] = await noise.closed()
            assert isinstance(last, Disconnect)
            assert last.code == ReasonCode.ADMINISTRATIVE_ACTION
            assert await calm.barrier() == []

    asyncio.run(scenario())


def test_everything_else_is_as_before(site: Site) -> None:
    async def scenario() -> None:
        async with site.serving() as broker:
            reader, writer = await Wire.connect(broker, "reader"), await Wire.connect(broker, "writer")
            for topic_filter in ("ward/+", "/#", "Constrainedly/#"):
                assert await reader.subscribe(topic_filter, 1) == 1
            writer.publish("ward/1", b"a")
            writer.publish("/ward", b"b")
            writer.publish("Constrainedly/x", b"c", qos=1, retain=True)
            assert (await writer.expect(PubAck)).code == 0
            assert await reader.published() == [("ward/1", b"a"), ("/ward", b"b"), ("Constrainedly/x", b"c")]

    asyncio.run(scenario())


@pytest.mark.parametrize("topic", ["$Constrained/a", "$Constrained//x", "/Constrained/a", TOPIC])
def test_without_tracing_these_are_ordinary_topics(topic: str) -> None:
    async def scenario() -> None:
        async with serving() as broker:
            client = await Wire.connect(broker, "any")
            assert await client.subscribe(topic, 1) == 1
            client.publish(topic, b"a")
            assert await client.published() == [(topic, b"a")]

    asyncio.run(scenario())


def test_sessions_kept_from_before_lose_what_they_may_not_hear(site: Site, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    kept: dict[str, Any] = {"clean_start": False, "properties": {"session_expiry_s": 600}}

    async def scenario() -> None:
        async with serving({"data": data}) as before:
            thief = await Wire.connect(before, "thief", **kept)
            for topic_filter in (answers_to("pump"), "$Constrained/#", "plain"):
                assert await thief.subscribe(topic_filter, 1) == 1
        async with site.serving(data=data) as broker:
            writer = await Wire.connect(broker, "writer")
            writer.publish(answers_to("pump"), b"sealed", qos=1)
            writer.publish("plain", b"heard", qos=1)
            assert [(await writer.expect(PubAck)).packet_id for _ in range(2)]
            thief = await Wire.connect(broker, "thief", **kept)
            assert thief.connack is not None
            assert thief.connack.session_present
            assert [packet.topic for packet in await thief.barrier() if isinstance(packet, Publish)] == ["plain"]

    asyncio.run(scenario())
