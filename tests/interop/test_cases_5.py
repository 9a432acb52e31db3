"""What Paho's interoperability suite looks at in MQTT 5 alone, as cases of ours over raw sockets.

docs/reference/broker.md says which case of the suite each test stands for. Both versions: `test_cases.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt5.packets import Properties, PubAck, Publish, Will
from gateway.mqtt5.types import ReasonCode
from tests.conftest import ROOT
from tests.gateway.harness import on_loop
from tests.interop.exchanging import KEEP_ALIVE_S, farewell, heard, joined, leave, passes, serving_cases

T = "TopicA"


def keeping(seconds: int) -> dict[str, Any]:
    return {"properties": {"session_expiry_s": seconds}}


async def is_kept(broker: Any, seconds: int) -> bool:
    """Come back and say whether the session was there; the client stays connected no longer than that."""
    wire = await joined(broker, "a", clean_start=False, **keeping(seconds))
    assert wire.connack is not None
    await leave(wire)
    return wire.connack.session_present


@on_loop
async def test_a_session_lives_as_long_as_connect_or_disconnect_said(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        await leave(await joined(broker, "a", **keeping(0)))
        assert not await is_kept(broker, 0)
        await leave(await joined(broker, "a", **keeping(5)))
        passes(broker, 2)
        assert await is_kept(broker, 5)
        passes(broker, 6)
        assert not await is_kept(broker, 5)
        await leave(await joined(broker, "a", **keeping(1)), session_expiry_s=5)
        passes(broker, 3)
        back = await joined(broker, "a", clean_start=False, **keeping(1))
        assert back.connack is not None
        assert back.connack.session_present
        await leave(back, session_expiry_s=0)
        assert not await is_kept(broker, 1)


@pytest.mark.parametrize(
    "properties",
    [
        {"user": (("a", "2"), ("c", "3"))},
        {"payload_format": 1, "content_type": "My name"},
        {"response_topic": "answers", "correlation_data": b"334"},
    ],
)
@on_loop
async def test_properties_of_a_publication_travel_at_every_qos(tmp_path: Path, properties: dict[str, Any]) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a")
        await one.subscribe(T, 2)
        for qos in range(3):
            one.publish(T, b"x", qos, properties=properties)
        found = await heard(one)
        assert [got.qos for got in found] == [0, 1, 2]
        for got in found:
            assert {name: getattr(got.properties, name) for name in properties} == properties


@on_loop
async def test_what_expires_while_its_receiver_is_away_is_not_delivered_and_the_rest_says_what_is_left(
    tmp_path: Path,
) -> None:
    async with serving_cases(tmp_path) as broker:
        away = await joined(broker, "b", **keeping(99_999))
        await away.subscribe(T, 2)
        await leave(away, session_expiry_s=999_999_999)
        one = await joined(broker, "a")
        for seconds in (1, 6):
            for qos in (1, 2):
                one.publish(T, b"%d" % seconds, qos, properties={"message_expiry_s": seconds})
        await heard(one)
        passes(broker, 3)
        found = await heard(await joined(broker, "b", clean_start=False))
        assert [(got.payload, got.qos) for got in found] == [(b"6", 1), (b"6", 2)]
        assert all(0 < (got.properties.message_expiry_s or 0) <= 3 for got in found)


@on_loop
async def test_no_local_and_retain_as_published(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        one, two = await joined(broker, "a"), await joined(broker, "b")
        for wire in (one, two):
            await wire.subscribe(T, 2, no_local=True)
        one.publish(T, b"x", 1)
        assert await heard(one) == []
        assert [got.payload for got in await heard(two)] == [b"x"]
        three = await joined(broker, "c")
        await three.subscribe(T, 2, retain_as_published=True)
        for retain in (False, True):
            three.publish(T, b"x", 1, retain=retain)
        assert [got.retain for got in await heard(three)] == [False, True]


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 3, 3), (1, 3, 0), (2, 0, 0)])
@on_loop
async def test_retain_handling(tmp_path: Path, handling: int, first: int, second: int) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a")
        for qos in range(3):
            one.publish(f"kept/{qos}", b"x", qos, retain=True)
        await heard(one)
        for expected in (first, second):
            await one.subscribe("+/+", 2, retain_handling=handling)
            assert sorted(got.qos for got in await heard(one)) == list(range(expected))


@on_loop
async def test_a_nameless_client_is_told_its_name(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "")
        assert one.connack is not None
        assert one.connack.properties.assigned_client_id


@on_loop
async def test_identifiers_of_all_matching_subscriptions_come_with_one_message(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        one, two = await joined(broker, "a"), await joined(broker, "b")
        await one.subscribe(T, 2, identifier=456_789)
        await two.subscribe(T, 2, identifier=2)
        await two.subscribe(f"{T}/#", 2, identifier=3)
        two.publish(T, b"x", 1)
        (got,) = await heard(two)
        assert set(got.properties.subscription_ids) == {2, 3}
        (got,) = await heard(one)
        assert got.properties.subscription_ids == (456_789,)


@on_loop
async def test_a_request_is_answered_where_it_says(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        asker, responder = await joined(broker, "a"), await joined(broker, "b")
        for wire in (asker, responder):
            await wire.subscribe(T, 2, no_local=True)
        asker.publish(T, b"request", 1, properties={"response_topic": T, "correlation_data": b"334"})
        await heard(asker)
        (request,) = await heard(responder)
        back = {"correlation_data": request.properties.correlation_data}
        responder.publish(request.properties.response_topic or "", b"response", 1, properties=back)
        await heard(responder)
        (answer,) = await heard(asker)
        assert (answer.payload, answer.properties.correlation_data) == (b"response", b"334")


@on_loop
async def test_a_client_abbreviates_topics_as_far_as_connack_allows_and_for_one_connection(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        zero = await joined(broker, "a")
        zero.publish(T, b"x", 1, properties={"topic_alias": 1})  # what follows is the alias 0
        zero.raw(b"\x32\x0e\0\6TopicA\0\2\3\x23\0\0")
        assert await farewell(zero) == ReasonCode.TOPIC_ALIAS_INVALID
        one = await joined(broker, "a", **keeping(99_999))
        assert one.connack is not None
        most = one.connack.properties.topic_alias_maximum
        assert most
        await one.subscribe(T, 2)
        for topic in (T, ""):
            one.publish(topic, b"x", 1, properties={"topic_alias": most})
        assert [got.topic for got in await heard(one)] == [T, T]
        one.publish(T, b"x", 1, properties={"topic_alias": most + 1})
        assert await farewell(one) == ReasonCode.TOPIC_ALIAS_INVALID
        back = await joined(broker, "a", clean_start=False, **keeping(99_999))
        back.publish(T, b"still subscribed", 1)
        assert [got.payload for got in await heard(back)] == [b"still subscribed"]
        back.publish("", b"x", 1, properties={"topic_alias": most})
        assert await farewell(back) == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("allowed", [1, 0, None])
@on_loop
async def test_the_server_abbreviates_topics_as_far_as_connect_allows(tmp_path: Path, allowed: int | None) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", properties={"topic_alias_maximum": allowed})
        await one.subscribe("#", 2)
        for qos in range(3):
            one.publish(T, b"x", qos)
        one.publish("other", b"x")
        found = [(got.topic, got.properties.topic_alias) for got in await heard(one)]
        if allowed:
            first, *rest = found
            assert first == (T, 1)
            assert [one for one in rest if one[1] == 1] == [("", 1)] * 2
            assert ("other", None) in rest
        else:
            assert sorted(found) == sorted([*[(T, None)] * 3, ("other", None)])


@on_loop
async def test_neither_side_sends_more_than_the_other_takes(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        large = await joined(broker, "a")
        assert large.connack is not None
        most = large.connack.properties.maximum_packet_size
        assert most
        large.publish(T, bytes(most))
        assert await farewell(large) == ReasonCode.PACKET_TOO_LARGE
        small = await joined(broker, "a", properties={"maximum_packet_size": 64})
        await small.subscribe(T, 2)
        small.publish(T, b"." * 32)
        small.publish(T, b"." * 64, 1)
        assert [len(got.payload) for got in await heard(small)] == [32]


@on_loop
async def test_the_server_says_and_enforces_a_shorter_keep_alive(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", keep_alive_s=120)
        assert one.connack is not None
        assert one.connack.properties.server_keep_alive_s == KEEP_ALIVE_S
        passes(broker, 1.5 * KEEP_ALIVE_S + 1)
        assert await farewell(one) == ReasonCode.KEEP_ALIVE_TIMEOUT


@on_loop
async def test_the_server_has_no_more_in_flight_than_the_clients_receive_maximum(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a", properties={"receive_maximum": 2})
        await one.subscribe(T, 2)
        for number in range(3):
            one.publish(T, b"%d" % number, 1)
        first, second = [packet for packet in await one.barrier() if isinstance(packet, Publish)]
        assert await one.barrier() == [], "both places are taken"
        one.send(PubAck(first.packet_id))
        (third,) = [packet for packet in await one.barrier() if isinstance(packet, Publish)]
        assert [got.payload for got in (first, second, third)] == [b"0", b"1", b"2"]


@on_loop
async def test_a_client_that_exceeds_the_servers_receive_maximum_reads_why_it_is_ended(tmp_path: Path) -> None:
    """It writes far more before it reads anything: a connection that was reset would take the DISCONNECT with it."""
    async with serving_cases(tmp_path) as broker:
        one = await joined(broker, "a")
        assert one.connack is not None
        most = one.connack.properties.receive_maximum
        assert most
        for number in range(1, 4 * most):
            one.publish(T, b"message %d" % number, 2, packet_id=number)
        await one.writer.drain()
        assert await farewell(one) == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.parametrize(("delay_s", "expiry_s", "due_s"), [(3, 5, 3), (5, 0, 0), (5, 2, 2)])
@on_loop
async def test_a_will_waits_for_its_delay_or_the_end_of_its_session(
    tmp_path: Path, delay_s: int, expiry_s: int, due_s: int
) -> None:
    async with serving_cases(tmp_path) as broker:
        will = Will(T, b"gone", properties=Properties(will_delay_s=delay_s))
        lost = await joined(broker, "a", will=will, **keeping(expiry_s))
        watch = await joined(broker, "b")
        await watch.subscribe(T, 2)
        client = broker.lifecycle.clients["a"]
        lost.cut()
        while client.connection is not None:
            await watch.barrier()
        if due_s:
            passes(broker, due_s - 0.5)
            assert await heard(watch) == []
            passes(broker, 1)
        assert [got.payload for got in await heard(watch)] == [b"gone"]


@on_loop
async def test_one_member_of_a_shared_subscription_gets_each_message(tmp_path: Path) -> None:
    async with serving_cases(tmp_path) as broker:
        members = [await joined(broker, name) for name in "ab"]
        for wire in members:
            await wire.subscribe("$share/sharename/x", 2)
            await wire.subscribe(T, 2)
        for number in range(10):
            members[1].publish("x", b"%d" % number)
        members[1].publish(T, b"all")
        found = [[got.payload for got in await heard(wire)] for wire in reversed(members)]
        assert all(payloads.count(b"all") == 1 for payloads in found)
        assert sorted(one for payloads in found for one in payloads if one != b"all") == [b"%d" % n for n in range(10)]


def test_the_manual_names_a_test_for_every_case() -> None:
    manual = (ROOT / "docs" / "reference" / "broker.md").read_text("utf-8")
    table = manual.partition("## Paho's interoperability suites")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(test_cases(?:_5)?)::(test_\w+)`", table))
    written = {
        (name, test)
        for name in ("test_cases", "test_cases_5")
        for test in re.findall(r"^async def (test_\w+)", (ROOT / f"tests/interop/{name}.py").read_text("utf-8"), re.M)
    }
    assert named == written
