"""Kinds of traces, their topics, and traces only where somebody is interested."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.document import constrained
from bridge.traces import kinds as traces
from bridge.traces.kinds import (
    DIGITS_MAX,
    EVERYTHING,
    GAUGE_EVERY_S,
    GAUGE_IDLE_S,
    INTEREST_LIVES_S,
    NESTED_MAX,
    OWN,
    SAID,
    STATE_MAX_BYTES,
    STATES,
    TRACKERS_MAX,
    WANTED_FRESH_MS,
    Audience,
    Interest,
    TraceKind,
    WantedTraces,
    body_of,
    fields_of,
    interest_of,
    own_fields,
    own_word,
    state_of,
    trace_topic,
)
from keys.errors import BadFrame, BadSignature, Expired, KeysError, NotAuthorised
from keys.frames import to_property
from keys.identity import Identity, Role
from keys.ownword import OwnWord
from tests.keys.test_delegation import AUTHORITY, HOUR_MS, PUMP, SPY, certified

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
    audience.take_interest(WantedTraces("desk", Interest.CHANGES | Interest.LOAD), NOW)
    audience.take_interest(WantedTraces("wall", Interest.STATES), NOW + 10)
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
    audience.take_interest(WantedTraces("desk", Interest(0)), now + 1)
    assert audience.gauge_at == now + GAUGE_IDLE_S, "who wants nothing is nobody"
    audience.take_interest(WantedTraces("desk", Interest.LOAD), now + 1)
    assert audience.gauge_at == now + 1 + GAUGE_EVERY_S
    audience.gauged(now + 31)
    audience.take_interest(WantedTraces("wall", Interest.LOAD), now + 60)
    assert audience.gauge_at == now + 31 + GAUGE_EVERY_S, "and nobody puts it off"


def test_a_tracker_may_change_its_mind() -> None:
    audience = Audience(NOW)
    audience.take_interest(WantedTraces("desk", EVERYTHING), NOW)
    audience.take_interest(WantedTraces("desk", Interest.LOAD), NOW + 1)
    assert audience.wants(NOW + 2) == Interest.LOAD
    audience.take_interest(WantedTraces("desk", Interest(0)), NOW + 3)
    assert audience.wants(NOW + 3) == Interest(0)


def test_many_trackers_are_bounded_and_the_next_to_go_goes_first() -> None:
    audience = Audience(NOW)
    for number in range(TRACKERS_MAX + 5):
        audience.take_interest(
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


# ------------------------------------------------------------------------------------- figures and exact edges

NOW_MS = int(NOW * 1000)
DESK = Identity.generate(b"desk" * 8)
WISH = WantedTraces("desk", Interest.LOAD, certified(DESK, "desk").encode(), True, NOW_MS)


def test_kinds_and_interests_have_the_numbers_of_the_protocol() -> None:
    names = (
        "INITIALIZING RECOVERING READY SHUTDOWN FAILURE_SUSPICION FAILED DISCONNECT JOIN REVERTING_TO_SILENT_MODE"
        " ALLS_WELL LOAD_INFORMATION NETWORK_METRICS GAUGE_INTEREST UNKNOWN"
    )
    assert [(kind.name, kind.value) for kind in TraceKind] == [(n, i) for i, n in enumerate(names.split(), 1)]
    assert [(each.name, each.value) for each in Interest] == [
        ("CHANGES", 1), ("ALL_UPDATES", 2), ("STATES", 4), ("LOAD", 8), ("NETWORK", 16),
    ]  # fmt: skip
    assert int(EVERYTHING) == 31
    assert sorted(STATES) == [1, 2, 3, 4]
    assert sorted(OWN) == [1, 2, 3, 4, 9, 11]
    assert sorted(SAID) == list(range(1, 14)), "no broker says that it knows nothing"


def test_topics_are_spelled_as_others_spell_them() -> None:
    at, session = "$Constrained/Traces", b"s" * 16
    here = f"{UUID}/{session.hex()}"
    spelled = {
        f"{at}/Broker/SubscribeOnly/Suppress/Registration": traces.REGISTRATION_TOPIC,
        f"{at}/Broker/SubscribeOnly/Suppress/TopicCreation": traces.CREATION_TOPIC,
        f"{at}/Broker/SubscribeOnly/Suppress/Discovery": traces.DISCOVERY_TOPIC,
        f"{at}/Broker/PublishSubscribe/Disseminate/Advertisements/+": traces.ADVERTISEMENTS_FILTER,
        f"{at}/Broker/PublishSubscribe/Disseminate/Advertisements/{UUID}": traces.advertisement_topic(TOPIC),
        f"{at}/Broker/SubscribeOnly/Disseminate/+/Interest": traces.ANSWERS_FILTER,
        f"{at}/Broker/SubscribeOnly/Disseminate/{UUID}/Interest": traces.answer_topic(TOPIC),
        f"{at}/Broker/PublishOnly/Disseminate/{UUID}/Interest": traces.gauge_topic(TOPIC),
        f"{at}/Broker/SubscribeOnly/Suppress/{here}": traces.to_broker(TOPIC, session),
        f"{at}/pump/SubscribeOnly/Suppress/{here}": traces.to_entity("pump", TOPIC, session),
        f"{at}/pump/SubscribeOnly/Suppress/{here}/Relayed": traces.relayed_to("pump", TOPIC, session),
        f"{at}/pump/PublishOnly/Suppress/{here}/Relayed": traces.relayed_from("pump", TOPIC, session),
        f"{at}/desk/SubscribeOnly/Disseminate/{UUID}/Keys": traces.key_topic("desk", TOPIC),
        f"{at}/desk/SubscribeOnly/Suppress/Answers": traces.answers_to("desk"),
    }
    for expected, found in spelled.items():
        assert found == expected


def test_a_query_begins_in_either_spelling() -> None:
    assert traces.DISCOVER == ("Availability/Traces", "Liveness")
    assert traces.DESCRIPTOR == "Availability/Traces/"


def test_a_body_is_written_shortly_in_order_and_as_it_is_spelled() -> None:
    assert body_of({"ö": 1, "a": {"z": [1, 2], "b": None}}) == '{"a":{"b":null,"z":[1,2]},"ö":1}'.encode()


def test_a_body_nests_so_deep_and_has_so_long_numbers() -> None:
    def nested(arrays: int) -> bytes:
        return b'{"a":' + b"[" * arrays + b"]" * arrays + b"}"

    assert fields_of(nested(NESTED_MAX - 1))
    with pytest.raises(BadFrame):
        fields_of(nested(NESTED_MAX))
    objects = b'{"a":' * (NESTED_MAX + 1) + b"1" + b"}" * (NESTED_MAX + 1)
    with pytest.raises(BadFrame):
        fields_of(objects)
    assert fields_of(b'{"a":' + b"9" * DIGITS_MAX + b"}") == {"a": int("9" * DIGITS_MAX)}
    with pytest.raises(BadFrame):
        fields_of(b'{"a":' + b"9" * (DIGITS_MAX + 1) + b"}")
    assert fields_of(b'{"a":1.5}') == {"a": 1.5}
    for number in (b"Infinity", b"-Infinity", b"1e999", b"-1e999"):
        with pytest.raises(BadFrame):
            fields_of(b'{"a":' + number + b"}")


def test_a_state_is_one_of_four_with_fields_that_fit_a_trace() -> None:
    assert state_of(b"\x03") == (TraceKind.READY, {"state": "READY"})
    assert state_of(b'\x04{"why":"service","state":"READY"}') == (
        TraceKind.SHUTDOWN, {"state": "SHUTDOWN", "why": "service"},
    )  # fmt: skip
    for bad in (b"", b"\x00", b"\x05", b"\x0b", b"\x03x", b"\x03[]", b"\x01\x03"):
        with pytest.raises(BadFrame):
            state_of(bad)
    spare = STATE_MAX_BYTES - len(body_of({"x": "", "state": "READY"}))
    assert state_of(b"\x03" + body_of({"x": "y" * spare}))[0] is TraceKind.READY
    with pytest.raises(BadFrame):
        state_of(b"\x03" + body_of({"x": "y" * (spare + 1)}))


def test_a_word_of_the_entitys_own_is_passed_on_as_it_is() -> None:
    word = OwnWord(1, 2, 3, TraceKind.READY, b"{}").signed(PUMP)
    assert own_fields(word) == {"word": to_property(word.encode())}
    assert own_word({**own_fields(word), "beside": 1}) == word
    for fields in ({}, {"word": 5}, {"word": None}, {"word": ["x"]}, {"word": "x"}):
        with pytest.raises(BadFrame):
            own_word(fields)


def test_a_wish_is_written_byte_by_byte_as_others_read_it() -> None:
    plain = WantedTraces("desk", Interest.LOAD)
    assert (plain.credentials, plain.anew, plain.time_ms, plain.signature) == (b"", False, 0, bytes(64))
    head = plain.signed_bytes()[:3]
    assert plain.signed_bytes() == head + b"\0\x04desk" + b"\x08" + bytes(8) + b"\0\0"
    assert (
        replace(plain, anew=True, time_ms=258).signed_bytes()
        == head + b"\0\x04desk" + b"\x88" + b"\0\0\0\0\0\0\1\2" + b"\0\0"
    )
    assert plain.encode() == plain.signed_bytes() + bytes(64)
    assert "signature" not in repr(WISH)


def test_a_wish_holds_if_its_tracker_signed_it_for_this_topic_and_just_now() -> None:
    wish = replace(WISH, signature=DESK.sign("veilmq/1 trace interest", TOPIC + WISH.signed_bytes()))
    assert wish == WISH.signed(DESK, TOPIC)
    for now_ms in (NOW_MS - WANTED_FRESH_MS, NOW_MS, NOW_MS + WANTED_FRESH_MS):
        assert wish.verify(TOPIC, AUTHORITY.public_bytes, now_ms) == certified(DESK, "desk")
    for now_ms in (NOW_MS - WANTED_FRESH_MS - 1, NOW_MS + WANTED_FRESH_MS + 1):
        with pytest.raises(Expired):
            wish.verify(TOPIC, AUTHORITY.public_bytes, now_ms)


def resigned(**changes: object) -> WantedTraces:
    return replace(WISH, **changes).signed(DESK, TOPIC)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (WISH, BadSignature),
        (WISH.signed(SPY, TOPIC), BadSignature),
        (WISH.signed(DESK, bytes(16)), BadSignature),
        (replace(WISH.signed(DESK, TOPIC), interest=Interest.CHANGES), BadSignature),
        (resigned(tracker="wall"), NotAuthorised),
        (resigned(credentials=certified(DESK, "desk", role=Role.GATEWAY).encode()), NotAuthorised),
        (resigned(credentials=b"none"), BadFrame),
        (resigned(credentials=replace(certified(DESK, "desk"), signature=bytes(64)).encode()), BadSignature),
    ],
    ids=["unsigned", "by another", "for another topic", "altered", "another name", "no entity", "none", "uncertified"],
)
def test_wishes_that_do_not_hold_are_refused(wish: WantedTraces, error: type[KeysError]) -> None:
    with pytest.raises(error):
        wish.verify(TOPIC, AUTHORITY.public_bytes, NOW_MS)


def test_a_wish_of_a_certificate_that_ended_is_refused() -> None:
    late_ms = NOW_MS + 10 * HOUR_MS + 1
    with pytest.raises(Expired):
        resigned(time_ms=late_ms).verify(TOPIC, AUTHORITY.public_bytes, late_ms)


def test_what_is_no_wish_to_the_last_byte_is_refused() -> None:
    good = WISH.signed(DESK, TOPIC).encode()
    assert WantedTraces.decode(good) == WISH.signed(DESK, TOPIC)
    name_at = good.index(b"desk")
    for bad in (
        good + b"x",
        good[:-1],
        bytes([good[0] ^ 1]) + good[1:],
        good[:1] + bytes([good[1] ^ 1]) + good[2:],
        good[:name_at] + b"\xff" + good[name_at + 1 :],
        good[: name_at + 4] + bytes([32]) + good[name_at + 5 :],
        good[: name_at + 4] + bytes([128 | 32]) + good[name_at + 5 :],
    ):
        with pytest.raises(BadFrame):
            WantedTraces.decode(bad)
    for wants in (31, 128 | 31, 0):
        read = WantedTraces.decode(good[: name_at + 4] + bytes([wants]) + good[name_at + 5 :])
        assert (read.interest, read.anew) == (Interest(wants & 31), wants >= 128)


def test_when_a_tracker_said_so_is_remembered_by_its_own_clock() -> None:
    audience = Audience(NOW)
    assert audience.asked_ms("desk") < 0, "before any time"
    audience.take_interest(replace(WISH, time_ms=0), NOW)
    audience.take_interest(replace(WISH, tracker="wall", time_ms=7), NOW)
    assert (audience.asked_ms("desk"), audience.asked_ms("wall"), len(audience)) == (0, 7, 2)
    audience.take_interest(replace(WISH, interest=Interest(0)), NOW)
    assert audience.asked_ms("desk") < 0
    assert len(audience) == 1


def test_as_many_trackers_as_the_bound_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "TRACKERS_MAX", 2)
    audience = Audience(NOW)
    for name in ("a", "b"):
        audience.take_interest(replace(WISH, tracker=name), NOW)
    assert len(audience) == 2
    audience.take_interest(replace(WISH, tracker="a"), NOW)  # said again: the last to be forgotten
    audience.take_interest(replace(WISH, tracker="c"), NOW)
    assert [audience.asked_ms(name) >= 0 for name in ("a", "b", "c")] == [True, False, True]


def test_an_interest_ends_at_its_time_and_not_those_that_were_said_later() -> None:
    audience = Audience(NOW)
    audience.take_interest(replace(WISH, interest=Interest.STATES), NOW)
    audience.take_interest(replace(WISH, tracker="wall"), NOW + 1)
    assert audience.wants(NOW + INTEREST_LIVES_S - 0.001) == Interest.STATES | Interest.LOAD
    assert audience.wants(NOW + INTEREST_LIVES_S) == Interest.LOAD
    assert len(audience) == 1
    assert audience.wants(NOW + INTEREST_LIVES_S + 0.999) == Interest.LOAD
    assert audience.wants(NOW + INTEREST_LIVES_S + 1) == Interest(0)
