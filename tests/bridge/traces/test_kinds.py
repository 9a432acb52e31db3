"""Kinds of traces, their topics, and traces only where somebody is interested."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.document import constrained
from bridge.traces import kinds as traces
from bridge.traces.kinds import (
    EVERYTHING,
    GAUGE_EVERY_S,
    GAUGE_IDLE_S,
    INTEREST_LIVES_S,
    STATES,
    TRACKERS_MAX,
    Audience,
    Interest,
    TraceKind,
    WantedTraces,
    body_of,
    fields_of,
    interest_of,
    trace_topic,
)
from keys.errors import BadFrame, KeysError

TOPIC = bytes(range(16))
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        (TraceKind.READY, "StateTransitions"),
        (TraceKind.SHUTDOWN, "StateTransitions"),
        (TraceKind.FAILURE_SUSPICION, "ChangeNotifications"),
        (TraceKind.FAILED, "ChangeNotifications"),
        (TraceKind.DISCONNECT, "ChangeNotifications"),
        (TraceKind.JOIN, "ChangeNotifications"),
        (TraceKind.REVERTING_TO_SILENT_MODE, "ChangeNotifications"),
        (TraceKind.ALLS_WELL, "AllUpdates"),
        (TraceKind.LOAD_INFORMATION, "Load"),
        (TraceKind.NETWORK_METRICS, "NetworkMetrics"),
    ],
)
def test_topics_of_the_sources_second_table(kind: TraceKind, suffix: str) -> None:
    spelled = f"/Constrained/Traces/Broker/Publish-Only/{UUID}/{suffix}"
    assert trace_topic(TOPIC, interest_of(kind)) == constrained.canonical(spelled)


def test_every_topic_is_canonical_and_says_who_may() -> None:
    here = [traces.REGISTRATION_TOPIC, traces.CREATION_TOPIC, traces.DISCOVERY_TOPIC]
    here += [traces.to_broker(TOPIC, b"s" * 16), traces.to_entity("pump", TOPIC, b"s" * 16), traces.answers_to("pump")]
    far = [traces.gauge_topic(TOPIC), traces.answer_topic(TOPIC), trace_topic(TOPIC, Interest.LOAD)]
    for topic in here + far:
        parsed = constrained.parse(topic)
        assert parsed is not None
        assert str(parsed) == topic
        assert parsed.stays_here is (topic in here)
    for topic in (traces.to_entity("pump", TOPIC, b"s" * 16), traces.answers_to("pump")):
        parsed = constrained.parse(topic)
        assert parsed is not None
        assert parsed.may_subscribe("pump", is_broker=False)
        assert not parsed.may_subscribe("spy", is_broker=False)


def test_states_are_the_entitys_own_words() -> None:
    assert {interest_of(kind) for kind in STATES} == {Interest.STATES}
    assert STATES.isdisjoint({TraceKind.FAILED, TraceKind.ALLS_WELL})


def test_nobody_asked_nobody_hears() -> None:
    assert Audience(NOW).wants(NOW) == Interest(0)


def test_interest_lives_ninety_seconds_and_is_asked_for_every_thirty() -> None:
    audience = Audience(NOW)
    assert audience.gauge_at == NOW
    audience.gauged(NOW)
    assert audience.gauge_at == NOW + GAUGE_EVERY_S
    audience.answered(WantedTraces("desk", Interest.CHANGES | Interest.LOAD), NOW)
    audience.answered(WantedTraces("wall", Interest.STATES), NOW + 10)
    assert audience.wants(NOW + 20) == Interest.CHANGES | Interest.LOAD | Interest.STATES
    assert audience.wants(NOW + INTEREST_LIVES_S) == Interest.STATES
    assert audience.wants(NOW + INTEREST_LIVES_S + 10) == Interest(0)
    assert len(audience) == 0


def test_the_longer_nobody_answers_the_rarer_is_the_question() -> None:
    audience, now, pauses = Audience(NOW), NOW, list[float]()
    for _ in range(6):
        audience.gauged(now)
        pauses.append(audience.gauge_at - now)
        now = audience.gauge_at
    assert pauses == [30, 60, 120, GAUGE_IDLE_S, GAUGE_IDLE_S, GAUGE_IDLE_S]
    audience.gauged(now)
    audience.answered(WantedTraces("desk", Interest(0)), now + 1)
    assert audience.gauge_at == now + GAUGE_IDLE_S, "who wants nothing is nobody"
    audience.answered(WantedTraces("desk", Interest.LOAD), now + 1)
    assert audience.gauge_at == now + 1 + GAUGE_EVERY_S
    audience.gauged(now + 31)
    audience.answered(WantedTraces("wall", Interest.LOAD), now + 60)
    assert audience.gauge_at == now + 31 + GAUGE_EVERY_S, "and nobody puts it off"


def test_a_tracker_may_change_its_mind() -> None:
    audience = Audience(NOW)
    audience.answered(WantedTraces("desk", EVERYTHING), NOW)
    audience.answered(WantedTraces("desk", Interest.LOAD), NOW + 1)
    assert audience.wants(NOW + 2) == Interest.LOAD
    audience.answered(WantedTraces("desk", Interest(0)), NOW + 3)
    assert audience.wants(NOW + 3) == Interest(0)


def test_many_trackers_are_bounded_and_the_next_to_go_goes_first() -> None:
    audience = Audience(NOW)
    for number in range(TRACKERS_MAX + 5):
        audience.answered(
            WantedTraces(f"t{number}", Interest.LOAD if number < 5 else Interest.STATES), NOW + number / 1000
        )
    assert len(audience) == TRACKERS_MAX
    assert audience.wants(NOW + 2) == Interest.STATES


@given(st.text(max_size=20), st.integers(0, 31), st.binary(max_size=50), st.booleans())
def test_answers_read_back(tracker: str, interest: int, credentials: bytes, anew: bool) -> None:
    wanted = WantedTraces(tracker, Interest(interest), credentials, anew, 2 * interest, bytes([interest]) * 64)
    assert WantedTraces.decode(wanted.encode()) == wanted


@given(st.binary(max_size=100))
def test_no_bytes_make_the_parser_raise_anything_else(data: bytes) -> None:
    with pytest.raises(KeysError):
        WantedTraces.decode(data)


def test_bodies_are_json_objects() -> None:
    assert fields_of(body_of({"state": "READY", "näme": 1})) == {"state": "READY", "näme": 1}
    assert fields_of(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    for bad in (b"[1]", b"{", b"\xff", b"[" * 100_000, b'{"a":"\\ud83d"}', b'{"a":NaN}', b'{"a":1e999}',
                b'{"a":' + b"9" * 400 + b"}"):  # fmt: skip
        with pytest.raises(BadFrame):
            fields_of(bad)
    with pytest.raises(ValueError, match="JSON"):
        body_of({"cpu": float("nan")})
