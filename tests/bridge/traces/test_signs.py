"""An entity that says by itself that it lives: what it costs, how soon its death is told, and who holds that back."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from types import SimpleNamespace

import pytest

from bridge.contract import Count, Tick
from bridge.traces.kinds import REGISTRATION_TOPIC, Interest, TraceKind
from bridge.traces.pings import ALIVE_PART, LONGER, Health, Ping, PingMetrics, Pulse
from bridge.traces.presets import LAN, Preset, within
from bridge.traces.registered import Traced
from bridge.traces.signs import (
    ASKED_WITHIN_S,
    ECHO,
    LIVED,
    METRICS_EVERY_S,
    PING,
    every_of,
    lived,
    metrics,
    ping_of,
    sign,
)
from bridge.traces.tracer import Interested, Registering, Say, Spoke, Tracer
from bridge.tracking.entity import ALIVE_LEAST_S, BrokerConnected, Told, TracedEntity
from keys.delegation import Trace
from keys.errors import BadFrame
from keys.resumption import KNOCK
from keys.tracesession import TraceSession, Word
from tests.bridge.traces.test_tracer import DESK, NOW, WantedTraces, advertised, certified
from tests.keys.test_delegation import AUTHORITY, NODE, PUMP

GOAL_S = 10.0
WAY_S = 0.01


@dataclass
class Link:
    """One entity and its broker. `held_s`: how long whoever sits between them holds back what the entity says at a
    moment; in order, as a connection does."""

    pace: Preset = field(default_factory=lambda: within(GOAL_S))
    held_s: Callable[[float], float] = lambda now: 0.0
    clock_runs: float = 1.0  # the entity's, against the broker's
    passes: Callable[[bytes], bytes] = lambda body: body  # what becomes of an entity's words

    def __post_init__(self) -> None:
        rng = random.Random(1)
        self.tracer = Tracer(self.pace, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, rng.randbytes)
        self.entity = TracedEntity(
            PUMP, certified(PUMP, "pump-7"), {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, rng.randbytes,
            advertisement=advertised(),
        )  # fmt: skip
        self.now, self.died_at = NOW, float("inf")
        self.packets: Counter[str] = Counter()
        self.told: list[tuple[float, TraceKind]] = []
        self.refused = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._last = 0, 0.0
        self._said(self.entity.handle(BrokerConnected(), NOW))
        self.run(1.0)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            dues = [(self.tracer.next_deadline, 0), (self._entity_due(), 1)]
            dues += [(self._queue[0][0], 2)] if self._queue else []
            due, which = min((at, kind) for at, kind in dues if at is not None)
            if due > until:
                self.now = until
                return
            self.now = max(self.now, due)
            if which == 2:
                heapq.heappop(self._queue)[2]()
            elif which == 1:
                assert self.entity.next_deadline is not None
                self._said(self.entity.handle(Tick(), max(self._clock(), self.entity.next_deadline)))
            else:
                self._told(self.tracer.handle(Tick(), self.now))

    def wanted(self, interest: Interest) -> None:
        wish = WantedTraces("desk", interest, certified(DESK, "desk").encode(), True, int(self.now * 1000))
        wish = wish.signed(DESK, advertised().topic)
        self._told(self.tracer.handle(Interested("desk", advertised().topic, wish.encode()), self.now))

    def first(self, kind: TraceKind, since: float = 0.0) -> float:
        return next((at for at, told in self.told if told is kind and at > since), float("inf"))

    def _clock(self) -> float:
        return NOW + (self.now - NOW) * self.clock_runs

    def _entity_due(self) -> float | None:
        due = self.entity.next_deadline
        return None if due is None or self.now >= self.died_at else NOW + (due - NOW) / self.clock_runs

    def _later(self, at: float, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at, self._order, act))

    def _said(self, effects: list) -> None:  # type: ignore[type-arg]
        if self.now >= self.died_at:
            return
        for effect in effects:
            if isinstance(effect, Say):
                self.packets["up"] += not effect.qos
                self._last = max(self._last, self.now + WAY_S + self.held_s(self.now))
                self._later(self._last, lambda said=effect: self._reaches_broker(said))  # type: ignore[misc]

    def _reaches_broker(self, said: Say) -> None:
        if said.topic == REGISTRATION_TOPIC:
            self._told(self.tracer.handle(Registering("pump-7", said.payload), self.now))
        elif (session := self.tracer.session_at(said.topic)) is not None:
            self._told(self.tracer.handle(Spoke("pump-7", session, self.passes(said.payload)), self.now))

    def _told(self, effects: list) -> None:  # type: ignore[type-arg]
        for effect in effects:
            if isinstance(effect, Count):
                self.refused += effect.name == "traces_refused"
            if not isinstance(effect, Say):
                continue
            if "/PublishOnly/" in effect.topic:
                self.told.append((self.now, TraceKind(Trace.decode(effect.payload).kind)))
                continue
            self.packets["down"] += not effect.qos
            told = Told(effect.topic, effect.payload)
            self._later(self.now + WAY_S, lambda told=told: self._said(self.entity.handle(told, self._clock())))  # type: ignore[misc]

    def dies(self) -> float:
        self.died_at = self.now
        return self.now


@pytest.mark.parametrize("pace", [within(GOAL_S), LAN], ids=["goal", "lan"])
def test_who_says_that_it_lives_is_hardly_asked(pace: Preset) -> None:
    link = Link(pace)
    link.run(30)
    link.packets.clear()
    link.run(600)
    assert link.packets["down"] == pytest.approx(600 / ASKED_WITHIN_S, abs=1)
    interval_s = pace.interval_s if pace is LAN else 0.95 * GOAL_S - 2 * pace.patience_s
    assert link.packets["up"] == pytest.approx(600 / (ALIVE_PART * interval_s), rel=0.15)
    assert not {kind for _, kind in link.told} - {TraceKind.JOIN, TraceKind.GAUGE_INTEREST}
    assert not link.refused


@pytest.mark.parametrize("lives_s", [5.0, 100.0, 301.5, 2_000.0])
def test_its_death_is_told_within_the_goal(lives_s: float) -> None:
    link = Link()
    link.run(lives_s)
    died = link.dies()
    link.run(3 * GOAL_S)
    assert GOAL_S / 3 <= link.first(TraceKind.FAILED) - died <= GOAL_S
    assert link.first(TraceKind.FAILURE_SUSPICION) < link.first(TraceKind.FAILED)


def test_who_holds_its_words_back_hides_its_death_no_longer_than_answers_would() -> None:
    """Ever later, and after the death one after the other, at their usual pace."""
    link = Link(held_s=lambda now: min(max(now - NOW - 60, 0.0) * 0.02, 30.0))
    link.run(240)
    died = link.dies()
    queued = [at for at, _, _ in link._queue if at > died + 1]
    assert not queued or max(queued) - died < GOAL_S, "whoever holds back more is asked, and cannot answer in time"
    link.run(60)
    assert link.first(TraceKind.FAILED, died) - died <= 2 * GOAL_S


@pytest.mark.parametrize("late_s", [1.0, 3.0, 6.0])
def test_what_answers_took_while_all_came_at_once_is_soon_forgotten(late_s: float) -> None:
    """Who takes the broker's own rush for a slow link speaks twice to ten times as often, and keeps the rush going."""
    link = Link(held_s=lambda now: late_s if now < NOW + 15 else 0.0)
    link.run(100)
    link.packets.clear()
    link.run(100)
    left_s = max(0.95 * GOAL_S - max(2 * link.pace.patience_s, LONGER * (late_s + 1)), GOAL_S / 4)
    assert link.packets["up"] <= 1.15 * 100 / (ALIVE_PART * left_s) + 1
    assert link.packets["down"] <= 1
    assert not {kind for _, kind in link.told} & {TraceKind.FAILED}


def test_words_that_were_held_for_minutes_count_for_nothing() -> None:
    link = Link()
    link.run(100)
    begins = link.now
    link.held_s = lambda now: max(begins + 100 - now, 0.0)  # nothing comes for so long, and then all of it
    link.run(100)
    failed = link.first(TraceKind.FAILED, begins)
    assert failed - begins <= GOAL_S, "for hundred seconds nothing proves that it lives"
    link.dies()
    again = link.now
    link.run(60)
    assert link.first(TraceKind.ALLS_WELL, again - 1) <= again + 1, "the newest of them is of now"
    assert link.first(TraceKind.FAILED, again) - again <= 2 * GOAL_S


@pytest.mark.parametrize("runs", [0.95, 0.999, 1.001, 1.05])
def test_clocks_that_run_otherwise_cost_pings_and_nobodys_life(runs: float) -> None:
    link = Link(clock_runs=runs)
    link.run(30)
    link.packets.clear()
    link.run(150)  # beyond ten seconds apart its tokens do not count
    assert not {kind for _, kind in link.told} - {TraceKind.JOIN, TraceKind.GAUGE_INTEREST}
    assert link.packets["down"] <= (20 if runs < 0.99 else 1)
    died = link.dies()
    link.run(3 * GOAL_S)
    assert link.first(TraceKind.FAILED) - died <= GOAL_S


def test_who_is_tracked_is_asked_for_metrics_and_told_well() -> None:
    link = Link()
    link.run(60)
    link.told.clear()
    for _ in range(4):
        link.wanted(Interest.ALL_UPDATES | Interest.NETWORK)
        link.run(30)
    count = Counter(kind for _, kind in link.told)
    assert count[TraceKind.ALLS_WELL] > 20
    assert 9 <= count[TraceKind.NETWORK_METRICS] <= 13


def test_a_word_of_life_counts_once_and_only_under_its_key() -> None:
    link = Link()
    link.run(20)
    before = list[bytes]()
    link.passes = lambda data: before.append(data) or data  # type: ignore[func-returns-value]
    link.run(10)
    link.passes = lambda data: data
    refused, (session,) = link.refused, link.tracer._traced
    for data in before:
        link._told(link.tracer.handle(Spoke("pump-7", session, data), link.now))
    forged = TraceSession(session, bytes(32), 0)
    link._told(link.tracer.handle(Spoke("pump-7", session, forged.say_word(Word.ALIVE, lived(0, 1))), link.now))
    assert link.refused == refused + len(before) + 1


@pytest.mark.parametrize("body", [b"", bytes(7), bytes(9)])
def test_a_word_of_life_that_does_not_say_when_is_refused(body: bytes) -> None:
    link = Link()
    link.run(20)
    (session,) = link.tracer._traced
    assert link.entity._session is not None
    link._told(link.tracer.handle(Spoke("pump-7", session, link.entity._session.say_word(Word.ALIVE, body)), link.now))
    assert link.refused == 1


def test_an_entity_that_knows_nothing_of_it_is_asked_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.tracking.entity.every_of", lambda body: (0, 0.0))
    link = Link()
    link.run(30)
    link.packets.clear()
    link.run(600)
    assert link.packets["down"] == link.packets["up"] == pytest.approx(600 / (0.95 * GOAL_S - 4), rel=0.05)


def test_an_answer_of_before_has_no_interval() -> None:
    assert every_of(ECHO.pack(1, 2)) == (2, 0.0)
    assert every_of(ping_of(Ping(1, 2), 4.86)) == (2, 4.86)
    assert PING.unpack(ping_of(Ping(1, 2), 1e9))[2] == 0xFFFF_FFFF
    for body in (b"", bytes(PING.size + 1)):
        with pytest.raises(BadFrame):
            every_of(body)


def test_a_broker_that_asks_for_thousands_a_second_gets_ten() -> None:
    link = Link()
    link.run(20)
    (traced,) = link.tracer._traced.values()
    ping = traced.session.say_word(Word.PING, PING.pack(99, 0, 1))
    link.entity.handle(Told(traced.listens_at, ping), link.now)
    assert link.entity.next_deadline == pytest.approx(link.now + ALIVE_LEAST_S, rel=0, abs=0.001)


def test_in_a_new_session_it_waits_for_its_first_ping() -> None:
    link = Link()
    link.run(20)
    assert (link.entity.next_deadline or 0) < link.now + GOAL_S
    link.entity.handle(BrokerConnected(), link.now)
    asked = link.entity.next_deadline
    assert asked is not None
    assert not any(
        isinstance(effect, Say) and not effect.payload.startswith(KNOCK) for effect in link.entity.handle(Tick(), asked)
    )


# ---------------------------------------------------------------------------------------------- exact edges


class Ear:
    """In place of a voice: what it was told to tell."""

    is_heard = False

    def __init__(self) -> None:
        self.told: list[tuple[TraceKind, dict[str, object], float]] = []

    def tell_trace(self, kind: TraceKind, fields: dict[str, object], now: float) -> list[object]:
        self.told.append((kind, fields, now))
        return [kind]


def traced_of(pulse: object) -> tuple[Traced, Ear]:
    ear = Ear()
    session = TraceSession(bytes(16), bytes(32), 1)
    return Traced(ear, "pump-7", session, pulse, "here", "there", 0), ear  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", [ECHO, PING])
def test_an_answer_says_to_which_ping_and_after_how_long(layout: Struct) -> None:
    pulse = Pulse(LAN, NOW)
    ping, _ = pulse.tick(NOW)
    assert ping is not None
    traced, _ = traced_of(pulse)
    echo = layout.pack(*ping, 0) if layout is PING else layout.pack(*ping)
    assert sign(traced, Word.ANSWER, echo, NOW + 0.25) == (None, {"ping": 1, "latency_ms": 250})
    assert pulse.metrics.latency_s == pytest.approx(0.25)
    for body in (b"", echo[:-1], echo + b"x"):
        with pytest.raises(BadFrame):
            sign(traced, Word.ANSWER, body, NOW + 0.3)


def test_with_its_first_word_it_listens_and_is_pinged_at_once() -> None:
    pulse = Pulse(LAN, NOW + 50)
    traced, _ = traced_of(pulse)
    assert sign(traced, Word.STATE, b"", NOW) == (None, {})
    assert pulse.next_deadline == NOW
    pulse.tick(NOW)
    due = pulse.next_deadline
    assert due > NOW + 0.1
    sign(traced, Word.STATE, b"", NOW + 0.1)
    assert pulse.next_deadline == due, "the first word only"


def test_a_word_of_life_proves_no_more_than_that_it_lived_then() -> None:
    """Attack: whoever sits between holds an entity's words back, and brings them after its death."""
    assert lived(1_000, 2.0) == LIVED.pack(3_000)
    assert lived(1_000, -2.0) == LIVED.pack(1_000), "clocks that go back make nothing older"
    pulse = Pulse(LAN, NOW)
    pulse.tick(NOW)
    while pulse.health is Health.ALIVE:
        pulse.tick(pulse.next_deadline)
    now, (traced, _) = pulse.next_deadline, traced_of(pulse)
    assert sign(traced, Word.ALIVE, lived(int(NOW * 1000), -1.0), now) == (None, {})
    assert pulse.health is Health.SUSPECTED
    assert sign(traced, Word.ALIVE, lived(int(NOW * 1000), 0.1), now) == (Health.ALIVE, {})


def test_metrics_are_told_every_ten_seconds_in_figures_that_people_read() -> None:
    measured = PingMetrics(loss_rate=1 / 3, latency_s=1.0006, jitter_s=None, reordered_rate=2 / 3)
    traced, ear = traced_of(SimpleNamespace(metrics=measured))
    told = {"loss_rate": 0.3333, "reordered_rate": 0.6667, "latency_ms": 1001, "jitter_ms": None}
    for after_s, tells in ((0.0, True), (METRICS_EVERY_S - 0.01, False), (METRICS_EVERY_S, True)):
        assert metrics(traced, NOW + after_s) == ([TraceKind.NETWORK_METRICS] if tells else [])
    assert ear.told == [(TraceKind.NETWORK_METRICS, told, NOW + at) for at in (0.0, METRICS_EVERY_S)]
    forgotten, ear = traced_of(None)
    assert metrics(forgotten, NOW) == []
