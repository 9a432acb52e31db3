"""A broker that does badly suspects itself first: before it judges it has read, and it waits longer, and says so."""

from __future__ import annotations

import random

import pytest

from bridge.contract.machine import Tick
from bridge.traces.pings import EXPERIENCE, Health, Pulse
from bridge.traces.presets import LAN
from bridge.traces.self_health import MANY_LEAST, MANY_SCORE, SICK, STRETCH, SelfHealth

NOW = 1_800_000_000.0
ROUND_TRIP_S = 0.01


def test_turns_in_time_leave_the_score_at_zero_and_late_ones_raise_it() -> None:
    ours = SelfHealth()
    for turn in range(1_000):
        ours.turn(0.01, 0, 100, NOW + turn / 100)
    assert (ours.score, ours.stretch) == (0.0, 1.0)
    now = NOW + 10
    for _ in range(50):  # five of every 300 ms
        now += 0.3
        ours.turn(0.295, 0, 100, now)
    assert ours.score > 0.8 > SICK
    assert 1 + STRETCH * 0.8 < ours.stretch <= 1 + STRETCH
    for _ in range(2_000):
        now += 0.01
        ours.turn(0.0, 0, 100, now)
    assert ours.score < 0.05, "it is well again"


def test_lateness_is_the_part_of_the_last_three_seconds_by_which_turns_came_late() -> None:
    ours, now = SelfHealth(), NOW
    assert (ours.others, ours.stretch) == (0, 1.0)
    ours.turn(9.0, 0, 1, now)
    assert ours.score == 0.0, "nothing to compare with"
    for late_s, pause_s, score in (
        (0.32, 0.6, 0.1),  # half of a fifth of the window, beyond what is usual
        (0.0, 0.6, 0.08),
        (9.0, 0.0, 0.08),  # no time has passed
        (9.0, -0.1, 0.08),  # a clock that goes back
        (5.02, 5.0, 1.0),  # the whole window
        (0.0, 3.0, 0.0),
        (99.0, 1.5, 0.5),  # not more than all of the time
        (0.0, 6.0, 0.0),  # what is older than the window is forgotten
        (0.047, 3.0, 0.0),  # less than a hundredth is nothing
        (0.08, 3.0, 0.02),
    ):
        now += pause_s
        ours.turn(late_s, 0, 1, now)
        assert ours.score == pytest.approx(score, abs=1e-6)
        assert ours.stretch == pytest.approx(1 + STRETCH * score, abs=1e-6)


def test_the_worse_of_two_signs_counts() -> None:
    ours = SelfHealth()
    ours.turn(0.0, MANY_LEAST, 2 * MANY_LEAST, NOW)
    assert ours.score == 0.0, "half of all is not most of them"
    ours.turn(5.02, MANY_LEAST, MANY_LEAST, NOW + 5)
    assert ours.score == 1.0
    ours.turn(0.0, MANY_LEAST, MANY_LEAST, NOW + 10)
    assert ours.score == MANY_SCORE
    assert ours.stretch == 1 + STRETCH * MANY_SCORE


def test_when_most_are_overdue_together_it_is_rather_the_broker() -> None:
    ours = SelfHealth()
    ours.turn(0.0, MANY_LEAST, 2 * MANY_LEAST - 1, NOW)
    assert ours.score == MANY_SCORE
    ours.turn(0.0, MANY_LEAST - 1, MANY_LEAST - 1, NOW)
    assert ours.score == 0.0, "of so few all may be dead"
    ours.turn(0.0, MANY_LEAST, 3 * MANY_LEAST, NOW)
    assert ours.score == 0.0


def test_a_sick_broker_asks_less_and_waits_longer_before_it_says_failed() -> None:
    def told(ours: SelfHealth) -> tuple[float, int]:
        pulse, now, answered = Pulse(LAN, NOW, 0.0, ours), NOW, 0
        while now < NOW + EXPERIENCE + 30:
            now = pulse.next_deadline
            ping, _ = pulse.tick(now)
            if ping is not None:
                pulse.take_echo(ping.number, ping.sent_ms, now + ROUND_TRIP_S)
                answered += 1
        died = now
        while pulse.health is not Health.FAILED:
            now = pulse.next_deadline
            pulse.tick(now)
        return now - died, answered

    sick = SelfHealth()
    sick.score, sick.stretch = 1.0, 1.0 + STRETCH
    (well_s, often), (sick_s, seldom) = told(SelfHealth()), told(sick)
    assert LAN.floor_s <= well_s <= LAN.floor_s + LAN.interval_s
    assert sick_s >= (1 + STRETCH) * LAN.floor_s
    assert seldom < often / 1.5


def test_a_pause_of_half_a_second_is_a_suspicion_at_most_on_the_best_of_links() -> None:
    """A program that collects garbage, a machine that swaps: no death, however good the link is."""
    for pause_s in (0.3, 0.5, 1.0, 1.9):
        pulse, now = Pulse(LAN, NOW), NOW
        told: list[Health] = []
        while now < NOW + EXPERIENCE + 60:
            now = pulse.next_deadline
            paused = now > NOW + EXPERIENCE + 30
            ping, changed = pulse.tick(now)
            told += [changed] if changed else []
            if ping is not None and not paused:
                pulse.take_echo(ping.number, ping.sent_ms, now + ROUND_TRIP_S)
            elif ping is not None:
                break
        until = now + pause_s
        while pulse.next_deadline < until:
            _, changed = pulse.tick(pulse.next_deadline)
            told += [changed] if changed else []
        assert Health.FAILED not in told, pause_s


def test_a_connection_that_ended_is_waited_for_from_now_on_whatever_the_interval_is() -> None:
    pulse = Pulse(LAN, NOW)
    ping, _ = pulse.tick(NOW)
    assert ping is not None
    pulse.take_echo(ping.number, ping.sent_ms, NOW + ROUND_TRIP_S)
    pulse.connection_ended(NOW + 0.1)
    while pulse.health is not Health.FAILED:
        now = pulse.next_deadline
        pulse.tick(now)
    assert now <= NOW + 0.1 + 2 * LAN.patience_s + 0.5


class Starved:
    """A broker that runs for a few milliseconds now and then; answers wait in its sockets meanwhile."""

    def __init__(self, entities: int, reads_first: bool) -> None:
        self.ours = SelfHealth()
        self.pulses = [Pulse(LAN, NOW, random.Random(place).random(), self.ours) for place in range(entities)]
        self.reads_first = reads_first
        self.waiting: list[tuple[float, int, int, int]] = []
        self.told: list[Health] = []

    def turn(self, now: float) -> None:
        if self.reads_first:
            self._read(now)
        due = min(pulse.next_deadline for pulse in self.pulses)
        self.ours.turn(now - due, sum(pulse.is_overdue for pulse in self.pulses), len(self.pulses), now)
        for place, pulse in enumerate(self.pulses):
            if pulse.next_deadline <= now:
                ping, changed = pulse.tick(now)
                self.told += [changed] if changed else []
                if ping is not None:
                    self.waiting.append((now + ROUND_TRIP_S, place, ping.number, ping.sent_ms))
        self._read(now)

    def _read(self, now: float) -> None:
        for at, place, number, sent_ms in [each for each in self.waiting if each[0] <= now]:
            self.waiting.remove((at, place, number, sent_ms))
            self.pulses[place].take_echo(number, sent_ms, now)


@pytest.mark.long
def test_a_broker_without_processor_time_takes_nobody_for_dead() -> None:
    broker, now = Starved(50, reads_first=True), NOW
    while now < NOW + 270:  # long enough to know that the link is a good one
        now += 0.05
        broker.turn(now)
    assert broker.told == []
    until = now + 15
    while now < until:
        now += 0.3
        broker.turn(now)
    assert broker.told == []


def test_a_tick_judges_and_a_message_does_not() -> None:
    """What one entity says is no moment to judge the next one, whose answer may lie behind it."""
    from bridge.traces.tracer import ClientGone
    from tests.bridge.traces.test_tracer import Entity

    pump = Entity()
    pump.register()
    pump.authorise()
    pump.answers = False
    pump.run(1)
    pump.now += 60
    effects = pump.handle(ClientGone("somebody else", clean=True))
    assert effects == []
    assert pump.handle(Tick()) != []
