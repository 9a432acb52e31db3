"""Before it is told failed an entity is asked through its other witnesses, who need not be believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.traces.elsewhere import ASKED_THERE_PER_S, ECHO, Elsewhere
from bridge.traces.events import AskThere, Relayed
from bridge.traces.kinds import TraceKind
from bridge.traces.pings import Health, Ping
from bridge.traces.presets import LAN
from bridge.traces.self_health import SelfHealth
from bridge.traces.telling import Voice
from keys.errors import BadContent, BadFrame, KeysError, OurFault, Replayed
from keys.tracesession import TraceSession, Word
from tests.bridge.witnessbus import ENTITY, WitnessBus

FAILED, SUSPECTED = TraceKind.FAILED, TraceKind.FAILURE_SUSPICION


def traced_by(bus: WitnessBus, witness: int):  # type: ignore[no-untyped-def]
    (found,) = bus.tracers[witness]._traced.values()
    return found


def bus_that_can_ask(others: int = 2) -> WitnessBus:
    bus = WitnessBus()
    for tracer in bus.tracers:
        tracer.self_health.others = others
    bus.tracker()
    bus.run(40)
    return bus


def said(bus: WitnessBus, witness: int) -> TraceKind:
    held = traced_by(bus, witness).voice.present_states
    return held[next(iter(held))][0]


@pytest.mark.long
def test_a_broken_link_to_one_witness_is_a_suspicion_and_no_failure_however_long_it_lasts() -> None:
    bus = bus_that_can_ask()
    bus.cut.add(0)
    bus.run(120)
    assert traced_by(bus, 0).pulse.health is Health.SUSPECTED
    assert [traced_by(bus, other).pulse.health for other in (1, 2)] == [Health.ALIVE] * 2
    assert said(bus, 0) is SUSPECTED
    assert bus.counted["entities_vouched"] == 1  # it is told once that it answers elsewhere
    assert bus.counted["entities_asked_there"] < 130  # one in a quarter of the patience, and no storm
    bus.cut.clear()
    bus.run(10)
    assert traced_by(bus, 0).pulse.health is Health.ALIVE
    assert FAILED not in bus.kinds()


def test_without_others_the_same_link_is_a_failure() -> None:
    bus = bus_that_can_ask(others=0)
    bus.cut.add(0)
    bus.run(20)
    assert traced_by(bus, 0).pulse.health is Health.FAILED
    assert "entities_asked_there" not in bus.counted


def test_a_death_is_told_as_soon_as_without_asking_there() -> None:
    told: list[float] = []
    for others in (0, 2):
        bus = bus_that_can_ask(others)
        died_at = bus.now
        bus.die()
        while said(bus, 0) is not FAILED:
            bus.run(0.05)
        told.append(bus.now - died_at)
        assert ("entities_asked_there" in bus.counted) is bool(others)  # asked before it was told
    assert told[1] <= told[0] + LAN.timeout_max_s / 10


def test_who_was_told_failed_and_then_answers_elsewhere_is_suspected_again() -> None:
    bus = bus_that_can_ask()
    bus.relays.clear()
    bus.cut.add(0)
    bus.run(20)
    assert traced_by(bus, 0).pulse.health is Health.FAILED
    bus.relays.update((1, 2))
    bus.run(70)  # after a failure pings are rare
    assert traced_by(bus, 0).pulse.health is Health.SUSPECTED
    assert said(bus, 0) is SUSPECTED


def test_a_dead_entity_that_was_vouched_for_fails_once_it_answers_nowhere() -> None:
    bus = bus_that_can_ask()
    bus.cut.add(0)
    bus.run(30)
    bus.die()
    bus.run(15)
    assert traced_by(bus, 0).pulse.health is Health.FAILED


def test_another_witness_that_lies_keeps_no_dead_entity_alive() -> None:
    """All that it has: what it passed on before, and what it makes up."""
    bus = bus_that_can_ask()
    traced = traced_by(bus, 0)
    passed: list[bytes] = []
    heard = traced.session.aside()
    traced.aside = heard
    bus.cut.add(0)
    handle = bus.tracers[0].handle

    def overhear(event, now):  # type: ignore[no-untyped-def]
        if isinstance(event, Relayed):
            passed.append(event.data)
        return handle(event, now)

    bus.tracers[0].handle = overhear  # type: ignore[method-assign]
    bus.run(20)
    assert passed
    bus.die()
    bus.run(15)
    assert traced.pulse.health is Health.FAILED
    session = traced.session.session
    forged = TraceSession(session, bytes(32), 0).aside().say_word(Word.ANSWER, ECHO.pack(traced.pulse.sent, 0))
    for lie in (*passed, forged, b"", passed[0][:-1]):
        effects = handle(Relayed(session, lie), bus.now)
        assert [getattr(each, "name", "") for each in effects] == ["traces_refused"]
    assert handle(Relayed(b"x" * 16, passed[0]), bus.now) == []
    assert traced.pulse.health is Health.FAILED


def test_an_answer_that_was_held_back_proves_life_at_the_time_of_its_ping_only() -> None:
    bus = bus_that_can_ask()
    pulse = traced_by(bus, 0).pulse
    bus.relays.clear()
    bus.cut.add(0)
    while pulse.health is not Health.SUSPECTED:
        bus.run(0.05)
    number, at = pulse.sent, pulse._last_ping
    bus.run(1.0)
    assert pulse.vouched(number, int(at * 1000) + 1, bus.now) is None  # never sent so
    assert pulse.vouched(number + 1_000, int(at * 1000), bus.now) is None
    before = pulse._verdict_at
    assert pulse.vouched(number, int(at * 1000), bus.now) is Health.SUSPECTED
    assert pulse._verdict_at == pytest.approx(max(before, at + pulse._patience_s))
    assert pulse.vouched(number, int(at * 1000), bus.now) is None  # no news any more


def test_it_is_asked_there_once_it_is_suspected_and_nobody_fails_unasked() -> None:
    bus = bus_that_can_ask()
    pulse = traced_by(bus, 0).pulse
    bus.relays.clear()
    bus.cut.add(0)
    while pulse.health is Health.ALIVE:
        bus.run(0.05)
    assert pulse._probed_at == pytest.approx(bus.now, abs=0.06)  # at once
    late = pulse._probed_at + 100.0  # a broker that had no time at all since
    ping, health = pulse.tick(late)
    assert (ping is not None, health) == (True, Health.FAILED)
    pulse.take_echo(ping.number, ping.sent_ms, late + 0.01)
    ping, health = pulse.tick(pulse.next_deadline)
    assert health is None
    ping, health = pulse.tick(pulse.next_deadline + 1_000.0)  # both verdicts are due at once
    assert health is Health.SUSPECTED
    assert ping is not None


def test_at_no_other_witness_nothing_is_asked_and_of_too_many_only_some() -> None:
    bus = bus_that_can_ask()
    traced = traced_by(bus, 0)
    ours = SelfHealth()
    elsewhere = Elsewhere(ours)
    assert elsewhere.ask_others(traced, Ping(1, 0), 0.0) == []
    ours.others = 1
    asked = [elsewhere.ask_others(traced, Ping(n, 0), 0.0) for n in range(int(ASKED_THERE_PER_S) + 9)]
    assert sum(bool(each) for each in asked) == ASKED_THERE_PER_S
    assert isinstance(asked[0][0], AskThere)
    assert ENTITY in asked[0][0].topic
    alone = WitnessBus(n=1)
    alone.run(5)
    assert elsewhere.ask_others(traced_by(alone, 0), Ping(1, 0), 100.0) == []
    voice = Voice(traced.advertisement, bytes, 100.0)
    assert elsewhere.ask_others(replace(traced, voice=voice), Ping(1, 0), 100.0) == [], "it let nobody speak of it yet"


def test_what_may_be_asked_elsewhere_comes_back_within_a_second() -> None:
    traced = traced_by(bus_that_can_ask(), 0)
    ours = SelfHealth()
    ours.others = 1
    elsewhere = Elsewhere(ours)
    for n in range(int(ASKED_THERE_PER_S)):
        elsewhere.ask_others(traced, Ping(n, 0), 0.0)
    assert not elsewhere.ask_others(traced, Ping(0, 0), 0.0)
    assert elsewhere.ask_others(traced, Ping(0, 0), 0.5)


@pytest.mark.attack(169)
def test_an_owner_of_thousands_that_are_silent_leaves_others_their_questions() -> None:
    """Attack: thousands of one owner's entities fall silent together, and others are judged by one broken link."""
    traced, other = (traced_by(bus_that_can_ask(), 0) for _ in range(2))
    holder = replace(other.advertisement.certificate, name="other")
    other.voice.advertisement = replace(other.advertisement, certificate=holder)
    ours = SelfHealth()
    ours.others = 1
    elsewhere = Elsewhere(ours)
    for n in range(int(3 * ASKED_THERE_PER_S)):
        elsewhere.ask_others(traced, Ping(n, 0), 0.0)
    assert not elsewhere.ask_others(traced, Ping(0, 0), 0.0)
    assert elsewhere.ask_others(other, Ping(0, 0), 0.0)


def test_of_whom_nothing_was_asked_elsewhere_nothing_is_heard_there() -> None:
    bus = bus_that_can_ask()
    traced, entity = traced_by(bus, 0), bus.entity._machines[0]._session
    assert entity is not None
    said = entity.aside().say_word(Word.ANSWER, ECHO.pack(traced.pulse.sent, 0))
    elsewhere = Elsewhere(SelfHealth())
    assert traced.aside is None
    assert elsewhere.take_other_answer(traced, said, bus.now) is None
    traced.aside, traced.pulse = traced.session.aside(), None
    assert elsewhere.take_other_answer(traced, said, bus.now) is None


def test_words_beside_a_session_are_no_words_of_it_and_come_in_any_order_with_them() -> None:
    key, session = bytes(range(32)), bytes(16)
    entity, broker = TraceSession(session, key, 0), TraceSession(session, key, 1)
    there, here = broker.aside(), entity.aside()
    first, second = there.say_word(Word.PING, b"1"), broker.say_word(Word.PING, b"2")
    assert entity.hear(second) == (Word.PING, b"2")
    assert here.hear(first) == (Word.PING, b"1")
    with pytest.raises(Replayed):
        here.hear(first)
    for ends in ((entity, there), (here, broker)):  # neither path's words pass for the other's
        word = ends[1].say_word(Word.PING, b"3")
        with pytest.raises(BadContent):
            TraceSession(session, key, 0).hear(word) if ends[0] is entity else entity.aside().hear(word)
    with pytest.raises(KeysError):
        TraceSession(session, key, 0).aside().hear(here.say_word(Word.ANSWER))  # our own word, back
    with pytest.raises(OurFault):
        there.aside()


def test_an_entity_hears_a_broker_through_others_only_while_it_has_a_session_with_it() -> None:
    bus = bus_that_can_ask()
    machines = bus.entity._machines
    assert [sorted(at for at in bus.heard_at[i] if at.endswith("Relayed")) for i in range(3)] == [
        sorted(str(m.relayed_at) for m in machines if m is not machines[i]) for i in range(3)
    ]
    (refused,) = machines[0].relayed(b"nonsense")
    assert getattr(refused, "name", "") == "traces_refused"
    bus.be_born()
    assert [m.relayed_at for m in bus.entity._machines] == [None] * 3
    assert bus.entity._machines[0].relayed(b"nonsense") == []


def test_what_is_passed_on_must_be_an_answer() -> None:
    bus = bus_that_can_ask()
    traced = traced_by(bus, 0)
    traced.aside = traced.session.aside()
    entity = bus.entity._machines[0]._session
    assert entity is not None
    end = entity.aside()
    for word, body in ((Word.STATE, bytes(ECHO.size)), (Word.ANSWER, b"short")):
        with pytest.raises(BadFrame):
            Elsewhere(SelfHealth()).take_other_answer(traced, end.say_word(word, body), bus.now)
