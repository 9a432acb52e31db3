"""One trace topic's voice: what is told to whom, until when, and who gets the key of what is sealed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from bridge.base import Wall
from bridge.contract.machine import Count
from bridge.traces import telling
from bridge.traces.fleet import Stood
from bridge.traces.kinds import (
    EVERYTHING,
    GAUGE_EVERY_S,
    WANTED_FRESH_MS,
    Interest,
    TraceKind,
    WantedTraces,
    fields_of,
    gauge_topic,
    key_topic,
    trace_topic,
)
from bridge.traces.remembered import RememberedEntity
from bridge.traces.reporting import Reporter, TraceReport
from bridge.traces.telling import KEYED_MAX, Say, Told, Voice, open_trace_key
from keys.delegation import Advertisement, Delegated, Token, Trace
from keys.errors import BadContent, BadFrame, BadSignature, Expired, KeysError, NotAuthorised
from keys.frames import Kind, opening
from keys.identity import Certificate, Identity, Role
from keys.sealedbox import seal_box
from tests.keys.test_delegation import AUTHORITY, HOLDER, HOUR_MS, NODE, NOW_MS, PUMP, UUID, certified

NOW = NOW_MS / 1000
DESK, SPY = (Identity.generate(bytes([n]) * 32) for n in (41, 42))
KEY = b"K" * 32
HOLDERS = {each.public_bytes: each for each in (DESK, SPY)}
ADVERTISEMENT = Advertisement(
    UUID, "Availability/Traces/pump-7", certified(PUMP, "pump-7"), ("desk*",), NOW_MS, NOW_MS + 5 * HOUR_MS, "node-1"
).signed(NODE)
TOKEN = Token(UUID, HOLDER.public_bytes, Delegated.PUBLISH, NOW_MS, NOW_MS + HOUR_MS).signed(PUMP)


@pytest.fixture
def voice() -> Voice:
    """One that may speak and seals."""
    made = Voice(ADVERTISEMENT, random.Random(1).randbytes, NOW)
    made.authorise(TOKEN, HOLDER)
    made.seal_under(KEY, NOW)
    return made


def wish(certificate: Certificate | None, name: str, interest: Interest = EVERYTHING, anew: bool = False,
         now: float = NOW) -> bytes:  # fmt: skip
    """Signed by whom the certificate names, as far as the test knows the key."""
    credentials = b"" if certificate is None else certificate.encode()
    wanted = WantedTraces(name, interest, credentials, anew, int(now * 1000))
    holder = None if certificate is None else HOLDERS.get(certificate.public_key)
    return wanted.encode() if holder is None else wanted.signed(holder, UUID).encode()


def ask(voice: Voice, certificate: Certificate | None, name: str, now: float = NOW, anew: bool = False) -> list[Told]:
    return voice.take_interest(wish(certificate, name, anew=anew, now=now), AUTHORITY.public_bytes, now)


def said(effects: Sequence[Told]) -> Iterator[Trace]:
    for effect in effects:
        if isinstance(effect, Say):
            yield Trace.decode(effect.payload)


def forged() -> Certificate:
    """One that the spy issued to itself."""
    return Certificate.issue(
        SPY, name="desk", role=Role.ENTITY, public_key=SPY.public_bytes, agreement_key=SPY.agreement_bytes,
        domain="plant", region=0, not_after_ms=NOW_MS + HOUR_MS,
    )  # fmt: skip


REFUSED: dict[str, tuple[Certificate | None, str, type[KeysError]]] = {
    "nobody": (None, "desk", BadFrame),
    "whom the entity did not invite": (certified(SPY, "spy"), "spy", NotAuthorised),
    "somebody in another's name": (certified(SPY, "desk-2"), "desk", NotAuthorised),
    "somebody uninvited in an invited name": (certified(SPY, "spy"), "desk", NotAuthorised),
    "a party that is no entity": (certified(SPY, "desk", role=Role.REPLICA), "desk", NotAuthorised),
    "whom no authority certified": (forged(), "desk", BadSignature),
}


@pytest.mark.parametrize("who", REFUSED)
def test_who_may_not_discover_the_topic_gets_no_trace_key_and_is_no_audience(voice: Voice, who: str) -> None:
    certificate, name, error = REFUSED[who]
    with pytest.raises(error):
        ask(voice, certificate, name)
    assert not voice.is_heard


def test_a_certificate_that_ended_gets_no_trace_key(voice: Voice) -> None:
    with pytest.raises(Expired):
        ask(voice, certified(DESK, "desk"), "desk", NOW + 11 * HOUR_MS / 1000)


def test_who_may_discover_the_topic_gets_its_trace_key_once_until_it_asks_anew(voice: Voice) -> None:
    desk = certified(DESK, "desk")
    given, count = ask(voice, desk, "desk")
    assert isinstance(given, Say)
    assert given.topic == key_topic("desk", UUID)
    assert open_trace_key(given.payload, UUID, DESK) == KEY
    assert count == Count("trace_keys_given")
    assert voice.is_heard
    assert ask(voice, desk, "desk") == []
    assert len(ask(voice, desk, "desk", anew=True)) == 2
    voice.seal_under(b"L" * 32, NOW)
    again = ask(voice, desk, "desk")[0]
    assert isinstance(again, Say)
    assert open_trace_key(again.payload, UUID, DESK) == b"L" * 32


@pytest.mark.long
def test_those_who_got_the_key_are_remembered_up_to_a_bound_the_first_forgotten_first(voice: Voice) -> None:
    keys = [Identity.generate(n.to_bytes(32)) for n in range(1, KEYED_MAX + 2)]
    HOLDERS.update({key.public_bytes: key for key in keys})
    desks = [certified(key, f"desk-{n}") for n, key in enumerate(keys)]
    for desk in desks:
        assert len(ask(voice, desk, desk.name)) == 2
    assert ask(voice, desks[1], desks[1].name) == []
    assert len(ask(voice, desks[0], desks[0].name)) == 2


def test_a_trace_key_opens_for_its_tracker_and_its_topic_only(voice: Voice) -> None:
    given = ask(voice, certified(DESK, "desk"), "desk")[0]
    assert isinstance(given, Say)
    for topic, tracker in ((UUID, SPY), (bytes(16), DESK)):
        with pytest.raises((BadContent, BadFrame)):
            open_trace_key(given.payload, topic, tracker)
    for size in range(len(given.payload)):
        with pytest.raises((BadContent, BadFrame)):
            open_trace_key(given.payload[:size], UUID, DESK)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_trace_key_has_32_bytes(voice: Voice, size: int) -> None:
    with pytest.raises(BadFrame):
        voice.seal_under(bytes(size), NOW)
    head = opening(Kind.TRACE_KEY) + UUID
    with pytest.raises(BadFrame):
        open_trace_key(head + seal_box(DESK.agreement_bytes, bytes(size), head, b"r" * 32), UUID, DESK)


# ------------------------------------------------------------------------------------------------- telling


def test_nothing_is_told_without_a_token_nor_after_it(voice: Voice) -> None:
    silent = Voice(ADVERTISEMENT, random.Random(2).randbytes, NOW)
    assert silent.tell_trace(TraceKind.FAILED, {}, NOW) == [Count("traces_unauthorised")]
    assert silent.tell_trace(TraceKind.ALLS_WELL, {}, NOW) == [], "which nobody wants"
    assert (silent.token, voice.token) == (None, TOKEN)
    assert silent.gauge(NOW) == []
    end = TOKEN.not_after_ms / 1000
    assert list(said(voice.tell_trace(TraceKind.FAILED, {}, end)))
    assert voice.tell_trace(TraceKind.FAILED, {}, end + 0.001) == [Count("traces_expired")]


def test_changes_are_told_unasked_and_the_rest_to_those_who_want_it(voice: Voice) -> None:
    stood, changed, count = voice.tell_trace(TraceKind.FAILED, {"why": "power"}, NOW)
    assert stood == Stood("pump-7", TraceKind.FAILED, ("desk*",))
    assert isinstance(changed, Say)
    assert changed.topic == trace_topic(UUID, Interest.CHANGES)
    assert count == Count("traces", 1, "FAILED")
    assert voice.tell_trace(TraceKind.ALLS_WELL, {}, NOW) == []
    (_, wellness, _) = voice.tell_trace(TraceKind.ALLS_WELL, {}, NOW, to=Interest.CHANGES)
    assert isinstance(wellness, Say)
    assert wellness.topic == trace_topic(UUID, Interest.CHANGES), "to those who heard that it was not"
    ask(voice, certified(DESK, "desk"), "desk")
    assert len(voice.tell_trace(TraceKind.ALLS_WELL, {}, NOW)) == 2


def test_traces_are_signed_numbered_and_sealed_each_under_a_nonce_of_its_own(voice: Voice) -> None:
    traces = [trace for _ in range(3) for trace in said(voice.tell_trace(TraceKind.FAILED, {"why": "power"}, NOW))]
    assert [trace.number for trace in traces] == [1, 2, 3]
    assert len({trace.body[:12] for trace in traces}) == 3
    for trace in traces:
        trace.verify(ADVERTISEMENT, NOW_MS)
        assert (trace.sealed, trace.time_ms, trace.token) == (True, NOW_MS, TOKEN)
        assert b"power" not in trace.encode()
        assert b"power" in trace.opened_body(KEY)


def test_without_a_trace_key_traces_are_clear_and_who_wants_them_proves_who_it_is() -> None:
    clear = Voice(ADVERTISEMENT, random.Random(3).randbytes, NOW)
    clear.authorise(TOKEN, HOLDER)
    with pytest.raises(BadFrame):
        ask(clear, None, "desk")
    assert ask(clear, certified(DESK, "desk"), "desk") == []
    (trace,) = said(clear.tell_trace(TraceKind.FAILED, {"why": "power"}, NOW))
    assert not trace.sealed
    assert b"power" in trace.body


@pytest.mark.parametrize("sealed", [True, False])
def test_who_wants_what_is_asked_in_clear_and_anew_when_there_is_a_key(sealed: bool) -> None:
    voice = Voice(ADVERTISEMENT, random.Random(4).randbytes, NOW)
    voice.authorise(TOKEN, HOLDER)
    assert voice.gauge(NOW)
    assert voice.gauge(NOW) == []
    if not sealed:
        return
    voice.seal_under(KEY, NOW)
    asking = voice.gauge(NOW)
    assert isinstance(asking[0], Say)
    assert asking[0].topic == gauge_topic(UUID)
    (trace,) = said(asking)
    assert (trace.kind, trace.sealed) == (TraceKind.GAUGE_INTEREST, False)
    assert b"true" in trace.body


def test_who_comes_anew_hears_what_holds_of_what_it_wants(voice: Voice) -> None:
    desk = certified(DESK, "desk")
    voice.set_state(Interest.CHANGES, TraceKind.READY, {}, NOW)
    voice.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, {"cpu": 1}, NOW)
    effects = voice.take_interest(wish(desk, "desk", Interest.LOAD, anew=True), AUTHORITY.public_bytes, NOW)
    told = [one for one in effects if isinstance(one, Say) and one.topic != key_topic("desk", UUID)]
    assert [one.topic for one in told] == [trace_topic(UUID, Interest.LOAD)]
    assert ask(voice, desk, "desk") == [], "heard once"


def test_what_leaves_hides_its_topic_and_payload(voice: Voice) -> None:
    (_, say, _) = voice.tell_trace(TraceKind.FAILED, {}, NOW)
    assert isinstance(say, Say)
    assert say.topic not in repr(say)
    assert repr(say.payload) not in repr(say)
    assert say.qos == 1
    assert replace(say, qos=0).qos == 0


# -------------------------------------------------------------------------------------------------- wishes


def test_a_wish_in_anothers_name_is_refused_though_its_certificate_is_public(voice: Voice) -> None:
    desk = certified(DESK, "desk").encode()
    unsigned = WantedTraces("desk", EVERYTHING, desk, True, NOW_MS)
    for forged_wish in (unsigned, unsigned.signed(SPY, UUID), unsigned.signed(DESK, bytes(16))):
        with pytest.raises(BadSignature):
            voice.take_interest(forged_wish.encode(), AUTHORITY.public_bytes, NOW)
    signed = unsigned.signed(DESK, UUID)
    for altered in (
        replace(signed, interest=Interest(0)),
        replace(signed, anew=False),
        replace(signed, time_ms=NOW_MS + 1),
    ):
        with pytest.raises(BadSignature):
            voice.take_interest(altered.encode(), AUTHORITY.public_bytes, NOW)
    assert not voice.is_heard


def test_a_wish_of_long_ago_is_refused_and_one_of_before_a_later_one_changes_nothing(voice: Voice) -> None:
    desk = certified(DESK, "desk")
    first, later = wish(desk, "desk"), wish(desk, "desk", Interest.LOAD, now=NOW + 10)
    voice.take_interest(later, AUTHORITY.public_bytes, NOW + 10)
    assert voice.take_interest(first, AUTHORITY.public_bytes, NOW + 11) == []
    assert voice.audience.wants(NOW + 11) == Interest.LOAD
    with pytest.raises(Expired):
        voice.take_interest(later, AUTHORITY.public_bytes, NOW + 10 + WANTED_FRESH_MS / 1000 + 1)
    with pytest.raises(Expired):
        voice.take_interest(wish(desk, "desk", now=NOW + 1_000), AUTHORITY.public_bytes, NOW)


def test_the_same_wish_again_keeps_interest_alive_costs_no_signature_and_tells_nothing(
    voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = wish(certified(DESK, "desk"), "desk", anew=True)
    voice.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, {"cpu": 1}, NOW)
    assert not voice.knows_wish(data)
    assert len(voice.take_interest(data, AUTHORITY.public_bytes, NOW)) > 2
    assert voice.knows_wish(data)
    monkeypatch.setattr(WantedTraces, "verify", None)
    assert voice.take_interest(data, AUTHORITY.public_bytes, NOW + 60) == []
    assert voice.audience.wants(NOW + 120) == EVERYTHING


def test_another_head_before_the_same_box_is_no_trace_key(voice: Voice) -> None:
    given = ask(voice, certified(DESK, "desk"), "desk")[0]
    assert isinstance(given, Say)
    for place in range(len(given.payload)):
        forged = bytearray(given.payload)
        forged[place] ^= 1
        with pytest.raises((BadContent, BadFrame)):
            open_trace_key(bytes(forged), UUID, DESK)


def test_a_right_of_before_is_held_bit_by_bit_and_as_long_as_it_counts(voice: Voice) -> None:
    fresh = Voice(ADVERTISEMENT, random.Random(1).randbytes, NOW)
    secret = HOLDER.private_bytes()
    assert (fresh.right, fresh.holds_token(TOKEN, secret, NOW_MS)) == (None, False)
    fresh.former = voice.right
    assert fresh.right == (TOKEN, secret)
    for now_ms in (TOKEN.not_before_ms, TOKEN.not_after_ms):
        assert fresh.holds_token(TOKEN, secret, now_ms)
    for now_ms in (TOKEN.not_before_ms - 1, TOKEN.not_after_ms + 1):
        assert not fresh.holds_token(TOKEN, secret, now_ms)
    assert not fresh.holds_token(replace(TOKEN, not_after_ms=TOKEN.not_after_ms + 1), secret, NOW_MS)
    assert not fresh.holds_token(TOKEN, SPY.private_bytes(), NOW_MS)
    assert fresh.token is None
    fresh.authorise_again()
    assert fresh.token == TOKEN
    (trace,) = said(fresh.tell_trace(TraceKind.FAILED, {}, NOW))
    trace.verify(ADVERTISEMENT, NOW_MS)
    other = replace(TOKEN, public_key=SPY.public_bytes).signed(PUMP)
    fresh.authorise(other, SPY)
    assert fresh.right == (other, SPY.private_bytes()), "the present one counts, not the one of before"


def test_what_nobody_hears_is_not_signed_and_holds_for_who_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[int] = []
    sign = Trace.signed
    monkeypatch.setattr(Trace, "signed", lambda trace, holder: (signed.append(trace.kind), sign(trace, holder))[1])
    heard: set[str] = set()
    voice = Voice(ADVERTISEMENT, random.Random(1).randbytes, NOW, listens=heard.__contains__)
    voice.authorise(TOKEN, HOLDER)
    told = voice.tell_trace(TraceKind.FAILED, {}, NOW)
    assert [type(each) for each in told] == [Stood, Count], "groups are summed up, whoever hears of the entity"
    assert told[1] == Count("traces", 1, "FAILED"), "and deaths are counted"
    assert voice.gauge(NOW) == [Count("traces", 1, "GAUGE_INTEREST")]
    assert signed == []
    heard.update((trace_topic(UUID, Interest.CHANGES), gauge_topic(UUID)))
    (trace,) = said(voice.tell_trace(TraceKind.ALLS_WELL, {}, NOW, to=Interest.CHANGES))
    trace.verify(ADVERTISEMENT, NOW_MS)
    assert trace.number == 1
    (question,) = said(voice.gauge(NOW + GAUGE_EVERY_S))
    assert (question.kind, question.number) == (TraceKind.GAUGE_INTEREST, 2)
    assert signed == [TraceKind.ALLS_WELL, TraceKind.GAUGE_INTEREST]


def test_a_key_that_nothing_is_said_with_is_not_kept_ready(voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a kilobyte; where somebody listens it is wanted all the time."""
    made: list[bytes] = []
    make = Identity.from_private_bytes
    monkeypatch.setattr(Identity, "from_private_bytes", lambda private: (made.append(private), make(private))[1])
    voice.tell_trace(TraceKind.FAILED, {}, NOW)
    voice.gauge(NOW)
    assert made == [], "it was just verified"
    voice.tell_trace(TraceKind.FAILED, {}, NOW)
    voice.tell_trace(TraceKind.FAILED, {}, NOW)
    assert made == [HOLDER.private_bytes()]
    ask(voice, certified(DESK, "desk"), "desk")
    for turn in range(3):
        voice.gauge(NOW + turn * GAUGE_EVERY_S)
        voice.tell_trace(TraceKind.FAILED, {}, NOW)
    assert len(made) == 1


def test_wishes_that_were_verified_are_remembered_up_to_a_bound_the_first_forgotten_first(
    voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "TRACKERS_MAX", 2)
    desk = certified(DESK, "desk")
    wishes = [wish(desk, "desk", now=NOW + place / 1000) for place in range(3)]
    for data in wishes:
        voice.take_interest(data, AUTHORITY.public_bytes, NOW)
    assert [voice.knows_wish(data) for data in wishes] == [False, True, True]


def test_a_wish_of_before_that_was_verified_once_changes_nothing_either(voice: Voice) -> None:
    """Whoever saw a tracker leave could send it away as often as it comes back."""
    desk = certified(DESK, "desk")
    wishes = [wish(desk, "desk", interest, now=NOW + place) for place, interest in
              enumerate((EVERYTHING, Interest(0), Interest.LOAD))]  # fmt: skip
    for data in wishes:
        voice.take_interest(data, AUTHORITY.public_bytes, NOW + 3)
    for replayed in wishes[:2]:
        assert voice.take_interest(replayed, AUTHORITY.public_bytes, NOW + 4) == []
        assert voice.audience.wants(NOW + 4) == Interest.LOAD


def test_a_wish_comes_once_more_as_long_as_it_is_of_now(voice: Voice) -> None:
    data = wish(certified(DESK, "desk"), "desk", anew=True)
    voice.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, {"cpu": 1}, NOW)
    voice.take_interest(data, AUTHORITY.public_bytes, NOW)
    assert voice.take_interest(data, AUTHORITY.public_bytes, NOW + WANTED_FRESH_MS / 1000) == []
    with pytest.raises(Expired):
        voice.take_interest(data, AUTHORITY.public_bytes, NOW + WANTED_FRESH_MS / 1000 + 0.001)


def test_the_same_moment_is_not_before_and_who_does_not_come_anew_is_told_nothing_again(voice: Voice) -> None:
    desk = certified(DESK, "desk")
    voice.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, {"cpu": 1}, NOW)
    assert len(voice.take_interest(wish(desk, "desk", Interest.LOAD), AUTHORITY.public_bytes, NOW)) == 2, "the key"
    told = voice.take_interest(
        wish(desk, "desk", Interest.LOAD | Interest.STATES, anew=True), AUTHORITY.public_bytes, NOW
    )
    assert [each.topic for each in told if isinstance(each, Say)] == [
        key_topic("desk", UUID), trace_topic(UUID, Interest.LOAD),
    ]  # fmt: skip
    assert voice.audience.wants(NOW) == Interest.LOAD | Interest.STATES


def test_what_holds_is_told_with_the_time_since_when(voice: Voice) -> None:
    clear = Voice(ADVERTISEMENT, random.Random(5).randbytes, NOW)
    clear.authorise(TOKEN, HOLDER)
    clear.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, {"cpu": 1}, NOW - 5)
    (trace,) = said(ask(clear, certified(DESK, "desk"), "desk", anew=True))
    assert fields_of(trace.body) == {"cpu": 1, "since_ms": NOW_MS - 5_000}
    assert trace.kind == TraceKind.LOAD_INFORMATION


def test_what_is_told_again_is_no_news(voice: Voice) -> None:
    voice.set_state(Interest.CHANGES, TraceKind.FAILED, {}, NOW)
    told = ask(voice, certified(DESK, "desk"), "desk", anew=True)
    assert not [each for each in told if isinstance(each, Stood)]
    assert Count("traces", 1, "FAILED") in told
    steady = voice.tell_trace(TraceKind.ALLS_WELL, {}, NOW)
    assert not [each for each in steady if isinstance(each, Stood)], "a heartbeat changes nothing"
    assert not [each for each in voice.gauge(NOW) if isinstance(each, Stood)], "nor does a question"


def test_a_voice_keeps_the_wall_clock_that_it_was_given() -> None:
    voice = Voice(ADVERTISEMENT, random.Random(6).randbytes, 0.0, wall=Wall(NOW))
    voice.authorise(TOKEN, HOLDER)
    (trace,) = said(voice.tell_trace(TraceKind.FAILED, {}, 1.5))
    assert (trace.time_ms, trace.number) == (NOW_MS + 1_500, 1)


def test_a_question_goes_out_at_its_time_and_is_asked_half_a_minute_later(voice: Voice) -> None:
    assert voice.gauge(NOW - 0.001) == []
    (trace,) = said(voice.gauge(NOW))
    assert fields_of(trace.body) == {"sealed": True}
    assert voice.gauge(NOW + GAUGE_EVERY_S - 0.001) == []
    assert voice.gauge(NOW + GAUGE_EVERY_S)
    voice.seal_under(KEY, NOW + 31)
    assert voice.audience.gauge_at == NOW + 31, "trackers need the new key"


class Silent:
    """A random source that says how much is drawn."""

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def __call__(self, size: int) -> bytes:
        self.drawn.append(size)
        return bytes([len(self.drawn)]) * size


def test_nonces_have_12_fresh_bytes_and_boxes_32() -> None:
    drawn = Silent()
    voice = Voice(ADVERTISEMENT, drawn, NOW)
    voice.authorise(TOKEN, HOLDER)
    voice.seal_under(KEY, NOW)
    voice.tell_trace(TraceKind.FAILED, {}, NOW)
    ask(voice, certified(DESK, "desk"), "desk")
    assert drawn.drawn == [12, 32]


def test_what_holds_is_what_was_said_last_of_each_and_goes_on_in_another_voice(voice: Voice) -> None:
    voice.set_state(Interest.STATES, TraceKind.READY, {"state": "READY", "of": {"a": [1]}}, NOW)
    voice.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, {}, NOW)
    voice.set_state(Interest.STATES, TraceKind.SHUTDOWN, {"state": "SHUTDOWN"}, NOW + 1)
    states = (TraceKind.SHUTDOWN, {"state": "SHUTDOWN", "since_ms": NOW_MS + 1_000})
    load = (TraceKind.LOAD_INFORMATION, {"since_ms": NOW_MS})
    assert list(voice.present_states.items()) == [(Interest.STATES, states), (Interest.LOAD, load)]
    assert len(voice._held) == 2
    other = Voice(ADVERTISEMENT, random.Random(7).randbytes, NOW)
    other.set_state(Interest.LOAD, TraceKind.LOAD_INFORMATION, {"cpu": 1}, NOW)
    other.inherit(voice)
    assert other.present_states == voice.present_states


def test_what_a_restart_must_not_lose_is_recorded_and_numbers_go_on_behind_those_of_before(voice: Voice) -> None:
    assert Voice(ADVERTISEMENT, random.Random(7).randbytes, NOW).remembered_entity(b"s" * 16, b"k" * 32) is None
    voice.set_state(Interest.STATES, TraceKind.READY, {"state": "READY"}, NOW)
    record = voice.remembered_entity(b"s" * 16, b"k" * 32)
    assert record == RememberedEntity(
        ADVERTISEMENT, TOKEN, HOLDER.private_bytes(), b"s" * 16, b"k" * 32, KEY,
        {Interest.STATES: (TraceKind.READY, {"state": "READY", "since_ms": NOW_MS})},
    )  # fmt: skip
    assert record is not None
    again = Voice(ADVERTISEMENT, random.Random(8).randbytes, NOW)
    again.restore(record, NOW + 1)
    assert again.remembered_entity(b"s" * 16, b"k" * 32) == record
    assert again.right is not None
    assert again.right[0] == TOKEN
    (trace,) = said(again.tell_trace(TraceKind.FAILED, {"why": "power"}, NOW + 1))
    assert trace.number == NOW_MS + 1_001
    assert b"power" in trace.opened_body(KEY)
    trace.verify(ADVERTISEMENT, NOW_MS + 1_000)


# -------------------------------------------------------------------------------------------------- reports


def reporting(discoverers: tuple[str, ...]) -> Voice:
    known = replace(ADVERTISEMENT, discoverers=discoverers).signed(NODE)
    voice = Voice(known, random.Random(9).randbytes, NOW, Reporter("gate", "plant", "reports"))
    voice.authorise(TOKEN, HOLDER)
    return voice


def test_an_entity_that_consents_is_reported_whoever_wants_it() -> None:
    voice = reporting(("gate",))
    assert voice.is_heard, "more than changes is wanted"
    (report,) = voice.tell_trace(TraceKind.ALLS_WELL, {"latency_ms": 5}, NOW)
    assert isinstance(report, TraceReport)
    assert (b'"kind":"ALLS_WELL"' in report.payload, b'"entity":"pump-7"' in report.payload) == (True, True)
    told = voice.tell_trace(TraceKind.FAILED, {}, NOW)
    assert [type(each) for each in told] == [Stood, TraceReport, Say, Count]
    again = voice.tell_trace(TraceKind.FAILED, {}, NOW, is_news=False)
    assert [type(each) for each in again] == [Say, Count]
    assert voice.tell_trace(TraceKind.NETWORK_METRICS, {}, NOW, is_news=False) == []


def test_an_entity_that_does_not_consent_is_reported_to_nobody() -> None:
    voice = reporting(("desk*",))
    assert not voice.is_heard
    assert voice.tell_trace(TraceKind.ALLS_WELL, {}, NOW) == []
    assert [type(each) for each in voice.tell_trace(TraceKind.FAILED, {}, NOW)] == [Stood, Say, Count]
    ask(voice, certified(DESK, "desk"), "desk")
    assert voice.is_heard, "by one tracker"
