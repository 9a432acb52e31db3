"""What both of Paho's interoperability suites look at, as cases of ours, in MQTT 3.1.1 and 5, over raw sockets.

docs/reference/broker.md says which case of which suite each test stands for. Cases of MQTT 5 alone: `test_cases_5.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt5.packets import ConnAck, Connect, Unsubscribe, Version, Will
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, on_loop
from tests.interop.exchanging import FORBIDDEN, KEEP_ALIVE_S, farewell, heard, joined, leave, passes, serving_cases

V311, V5 = Version.V311, Version.V5
BOTH = pytest.mark.parametrize("version", [V311, V5])
PAYLOADS = [b"zero", b"one", b"two"]


def lasting(version: Version, seconds: int = 1_000) -> dict[str, Any]:
    """Fields of a CONNECT whose session outlives the connection."""
    return {"clean_start": False, **({"properties": {"session_expiry_s": seconds}} if version == V5 else {})}


@BOTH
@on_loop
async def test_a_client_comes_twice_and_hears_itself_at_every_qos(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        await leave(await joined(broker, "a", version))
        one = await joined(broker, "a", version)
        assert one.connack is not None
        assert not one.connack.session_present
        await one.subscribe("TopicA", 2)
        for qos, payload in enumerate(PAYLOADS):
            one.publish("TopicA", payload, qos)
        assert [(got.payload, got.qos) for got in await heard(one)] == [(b"zero", 0), (b"one", 1), (b"two", 2)]


@BOTH
@on_loop
async def test_a_second_connect_ends_the_connection(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", version)
        one.send(Connect("a", version))
        if version == V5:
            assert await farewell(one) == ReasonCode.PROTOCOL_ERROR
        else:
            assert await one.closed() == []


@BOTH
@on_loop
async def test_a_protocol_of_another_name_is_refused(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await Wire.open(broker, V311)
        one.raw(b"\x10\x0b\0\2hj" + bytes((version, 2, 0, 0, 0, 1)) + b"a")
        assert await one.closed() in ([], [ConnAck(False, 1)])


@BOTH
@on_loop
async def test_retained_messages_come_with_the_subscription_until_they_are_cleared(
    tmp_path: Path, version: Version
) -> None:
    user = (("a", "2"), ("c", "3"))
    properties = {"properties": {"user": user}} if version == V5 else {}
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", version)
        for qos, payload in enumerate(PAYLOADS):
            one.publish(f"kept/{qos}", payload, qos, retain=True, **properties)
        await heard(one)
        await one.subscribe("+/+", 2)
        found = await heard(one)
        assert sorted((got.qos, got.payload, got.retain) for got in found) == [
            (qos, payload, True) for qos, payload in enumerate(PAYLOADS)
        ]
        assert {got.properties.user for got in found} == {user if version == V5 else ()}
        await leave(one)
        two = await joined(broker, "a", version)
        for qos in range(3):
            two.publish(f"kept/{qos}", b"", qos, retain=True)
        await heard(two)
        await two.subscribe("+/+", 2)
        assert await heard(two) == []


@BOTH
@on_loop
async def test_the_will_of_a_connection_that_breaks_is_published_once(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        watch = await joined(broker, "watch", version)
        await watch.subscribe("Topic/C", 2)
        lost = await joined(broker, "lost", version, will=Will("Topic/C", b"gone", 1), keep_alive_s=2)
        lost.cut()
        got = await watch.next()
        assert getattr(got, "payload", None) == b"gone"
        passes(broker, 10)
        assert [one.payload for one in await heard(watch)] == []


@BOTH
@on_loop
async def test_who_is_silent_for_one_and_a_half_keep_alives_is_cut_off_and_its_will_published(
    tmp_path: Path, version: Version
) -> None:
    async with serving_cases(tmp_path) as broker:
        watch = await joined(broker, "watch", version, keep_alive_s=0 if version == V311 else KEEP_ALIVE_S)
        await watch.subscribe("/TopicA", 2)
        silent = await joined(broker, "silent", version, keep_alive_s=5, will=Will("/TopicA", b"expired"))
        passes(broker, 7)
        assert await heard(watch) == []
        passes(broker, 1)
        assert [got.payload for got in await heard(watch)] == [b"expired"]
        assert len(await silent.closed()) == (version == V5)


@on_loop
async def test_an_empty_client_id_needs_a_clean_session_in_3_1_1_only(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        refused = await Wire.open(broker, V311)
        refused.raw(b"\x10\x0c\0\4MQTT\4\0\0\0\0\0")
        assert await refused.closed() == [ConnAck(False, 2)]
        await leave(await joined(broker, "", V311, clean_start=True))
        for clean in (True, False):
            one = await joined(broker, "", V5, clean_start=clean)
            assert one.connack is not None
            assert one.connack.properties.assigned_client_id
            await leave(one)


@BOTH
@on_loop
async def test_what_comes_while_a_client_is_away_waits_for_it(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", version, **lasting(version))
        await one.subscribe("+/+", 2)
        await leave(one)
        two = await joined(broker, "b", version)
        for qos, payload in enumerate(PAYLOADS):
            two.publish(f"t/{qos}", payload, qos)
        await heard(two)
        back = await joined(broker, "a", version, **lasting(version))
        assert back.connack is not None
        assert back.connack.session_present
        assert [(got.payload, got.qos) for got in await heard(back)] == [(b"one", 1), (b"two", 2)]


@BOTH
@on_loop
async def test_of_overlapping_subscriptions_the_highest_qos_counts(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", version)
        await one.subscribe("TopicA/#", 2)
        await one.subscribe("TopicA/+", 1)
        one.publish("TopicA/C", b"x", 2)
        assert [(got.payload, got.qos) for got in await heard(one)] == [(b"x", 2)]


@BOTH
@on_loop
async def test_what_was_not_acknowledged_comes_again_with_the_next_connection(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        mute = await joined(broker, "a", version, **lasting(version))
        await mute.subscribe("TopicA/#", 2)
        mute.publish("TopicA/B", b"one", 1)
        mute.publish("TopicA/C", b"two", 2)
        await mute.barrier()  # both came; neither is answered
        await leave(mute, **({"session_expiry_s": 1_000} if version == V5 else {}))
        back = await joined(broker, "a", version, **lasting(version))
        assert [(got.payload, got.qos, got.dup) for got in await heard(back)] == [(b"one", 1, True), (b"two", 2, True)]


@BOTH
@on_loop
async def test_a_filter_that_is_not_permitted_is_refused_in_suback(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", version)
        refusal = ReasonCode.NOT_AUTHORIZED if version == V5 else 0x80
        assert await one.subscribe(FORBIDDEN, 2) == refusal
        assert await one.subscribe("test/other", 2) == 2


@BOTH
@on_loop
async def test_a_wildcard_does_not_match_topics_that_begin_with_a_dollar(tmp_path: Path, version: Version) -> None:
    async with serving_cases(tmp_path) as broker:
        one, exact = await joined(broker, "a", version), await joined(broker, "b", version)
        await one.subscribe("+/+", 2)
        await exact.subscribe("$TopicA/B", 2)
        one.publish("$TopicA/B", b"x", 1)
        assert await heard(one) == []
        assert [got.payload for got in await heard(exact)] == [b"x"]


@BOTH
@on_loop
async def test_after_unsubscribe_nothing_more_comes_of_that_filter(tmp_path: Path, version: Version) -> None:
    topics = ("TopicA", "TopicA/B", "Topic/C")
    async with serving_cases(tmp_path) as broker:
        one, two = await joined(broker, "a", version), await joined(broker, "b", version)
        for topic in topics:
            await one.subscribe(topic, 2)
        one.send(Unsubscribe(one.new_id(), topics[:1]))
        await one.barrier()
        for topic in topics:
            two.publish(topic, b"x", 1)
        await heard(two)
        assert [got.topic for got in await heard(one)] == ["TopicA/B", "Topic/C"]


@on_loop
async def test_a_client_of_mqtt_3_1_comes_back_to_its_session_and_is_answered_when_it_is_refused(
    tmp_path: Path,
) -> None:
    async with serving_cases(tmp_path) as broker:
        v31 = Version.V31
        one = await joined(broker, "old", v31, clean_start=False)
        await one.subscribe("t", 2)
        await leave(one)
        other = await joined(broker, "other", V5)
        other.publish("t", b"waited", 1)
        await heard(other)
        back = await Wire.open(broker, v31)
        back.raw(b"\x10\x11\0\6MQIsdp\3\0\0\0\0\3old")
        assert await back.next() == ConnAck(False), "the byte of the flag is reserved there"
        assert [got.payload for got in await heard(back)] == [b"waited"]
        for flags in (0, 2):
            nameless = await Wire.open(broker, v31)
            nameless.raw(b"\x10\x0e\0\6MQIsdp\3" + bytes((flags, 0, 0, 0, 0)))
            assert await nameless.closed() == [ConnAck(False, 2)]
