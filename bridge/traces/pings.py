"""The pings of an entity: the time of the next ping, missed pings, and the verdicts suspected and failed (B5).

A ping has a number and the time at which it was sent, by the pinging broker's clock; the entity echoes both, so that
the entity's clock does not matter. A ping is *missed* when its timeout passes without an answer; a later answer still
counts. After a miss pings follow fast, and any answer brings the entity back. After a failure pings go on, ever more
rarely.

The proof of a death is the length of the silence, not the number of missed pings: behind a retransmission of TCP or
in a burst of losses all pings are late together, and ten prove no more than one. Where losses are single, the fast
pings end the wait soon. So a link is known by its *waits*, from the first ping without an answer to any answer. A
wait that is longer by half than the recent longest is a death. Short waits prove little about longer ones: up to
`patience_s` nobody is dead, unless for `EXPERIENCE` answers no wait was longer than a part of `patience_s`. If long
waits get rarer exponentially, a wait exceeds the longest of N waits `STEADY` times with a chance of N to the power of
minus `STEADY`.

    timeout   = smoothed round trip + max(4 x its deviation, margin_s), at most timeout_max_s    (RFC 6298, section 2),
                and at most half of the patience, so that two pings are asked. One answer QUICK times as fast as usual
                tells a newcomer that came in a rush from a slow link; then the estimate begins anew
    patience  = caution x max(1.5 x longest, 2 patience_s + timeout), where the longest wait fades, to its
                third in an hour; after EXPERIENCE answers caution x max(1.5 x longest, min(patience_s, 3 x longest)),
                where no longest wait is believed to be shorter than margin_s
    suspected after half of the patience without an answer, and not before the longest wait; failed after all of it,
    and
                never before `floor_s`: a program that pauses for half a second is no death, however good its link.
                With
                others to ask through (`self_health.others`), not before a ping went through them, and a timeout
                passed.
                An entity that answers only there stays suspected: its link to us is broken
    every     = interval - max(interval / 10, timeout), at least half of the interval: an entity with this period gives
                signs of life unasked, and is asked if none comes within the interval, or if not asked for long; an
                entity that seems slow, or may speak more rarely than it was told, is asked within TOLD_WITHIN_S
    interval  = interval_s, half of it until ten pings went, since nothing is known of a newcomer, unless our turns
    come
                late; with a goal (`within`) the rest of most of the goal after the patience; at once after the first
                miss, then an eighth of the wait so far, at least interval_min_s, or a quarter of interval_s for a
                newcomer or while our turns come late, since so many pings might hold the answers back; doubled up to
                AFTER_FAILURE_S after a failure; a quarter of the patience while the entity answers elsewhere only

While the broker itself does badly (`self_health`) patience and intervals are longer.

The last ten pings give loss, latency and reordering (NETWORK_METRICS, B4). Not here: the listeners (`telling`), other
signs of life, votes of several witnesses (`tracking.witnessing`).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from bridge.base import Row, Transitions
from bridge.traces.presets import Preset
from bridge.traces.self_health import SelfHealth

HISTORY = 10  # pings from which metrics are computed
OUTSTANDING_MAX = 64  # unanswered pings remembered: some 40 are sent within the longest patience
AFTER_FAILURE_S = 60.0
LONGER = 1.5  # a wait is a death when it is longer than the longest survived wait by this factor
STEADY = 3  # ... or by this factor where all waits are short
EXPERIENCE = 240  # answers: four minutes of them
LONGEST_LIFE_S = 3600.0  # the longest wait fades to its third in this time
SURVIVED_MAX_S = 10.0  # an entity that came back after a longer wait was dead, and is a newcomer
REPEAT = 8  # pings follow each other by this part of the wait so far
GOAL_PART = 0.95  # of a goal; the rest is for our own turns
GOAL_LEAST = 0.25  # ... and the least part of it for the interval
ALIVE_PART = 0.9  # of the interval: the period of unasked signs of life; the rest is for the way
TOLD_WITHIN_S = 30.0
QUICK = 4
NEVER = float("inf")
LATE = 4  # our own turn is late if its delay exceeds a timeout divided by this


UNKNOWN, LOST = -2.0, -1.0  # instead of a round trip
_LEADING = 1 << HISTORY
_Sent: TypeAlias = tuple[int, float, float]  # a ping's number, the time of sending, the time at which it is missed


class Health(StrEnum):
    """The broker's verdict on an entity."""

    ALIVE = "alive"
    SUSPECTED = "suspected"
    FAILED = "failed"


class Sign(StrEnum):
    """An event in the life of an entity, as its pulse knows it."""

    SILENCE = "silence"
    LIFE = "sign of life"
    VOUCHER = "answer elsewhere"


ENTITY = Transitions(
    "An entity",
    (Health.ALIVE,),
    (
        Row(Sign.SILENCE, (Health.ALIVE,), Health.SUSPECTED,
            "half of the patience is over: trackers hear FAILURE_SUSPICION, and the entity is asked through others"),
        Row(Sign.SILENCE, (Health.SUSPECTED,), Health.FAILED,
            "all of the patience is over: trackers hear FAILED, and pings get rarer"),
        Row(Sign.LIFE, tuple(Health), Health.ALIVE,
            "an answer to us, or a sign of life that nobody can forge: trackers hear READY"),
        Row(Sign.VOUCHER, (Health.SUSPECTED, Health.FAILED), Health.SUSPECTED,
            "it answers through another witness, and not to us: its link to us is broken"),
    ),
    "the goodbye of the entity, the end of its certificate, or long after it failed",
)  # fmt: skip


class Ping(NamedTuple):
    """A ping to send now. `sent_ms`: the broker's clock."""

    number: int
    sent_ms: int


@dataclass(frozen=True, slots=True)
class PingMetrics:
    """The metrics of the last ten pings whose outcome is known. Latencies in seconds, None without an answer; rates 0
    to 1.
    """

    loss_rate: float
    latency_s: float | None
    jitter_s: float | None
    reordered_rate: float


class Pulse:
    """The pings of an entity. `tick` when `next_deadline` is reached; `take_echo` for every answer.

    A broker has tens of thousands of these and does little else: the consequences of an answer are computed once, on
    arrival, and a ping that is answered in time leaves no object behind.
    """

    __slots__ = (
        "_answered_at", "_answers", "_asked_at", "_deviation_s", "_excused_s", "_highest_answered", "_is_late",
        "_is_vouched", "_last_ping", "_longest_s", "_missed", "_misses", "_next_ping", "_number", "_ours",
        "_patience_s", "_pause_s", "_preset", "_probed_at", "_reordered", "_smoothed_s", "_spread_s", "_suspect_s",
        "_told_s", "_trips", "_waiting", "health", "timeout_s",
    )  # fmt: skip

    def __init__(self, preset: Preset, now: float, spread: float = 0.0, ours: SelfHealth | None = None) -> None:
        """Plans the first ping at once. The pause after it is longer by `spread` of an interval, or with a goal the
        pause before it is shorter: entities that came together are not pinged together. `ours`: the broker's own
        health.
        """
        self._ours = ours or SelfHealth()
        self.health = Health.ALIVE
        self.timeout_s = preset.timeout_initial_s
        """The timeout of the next ping, in seconds."""
        self._preset = preset
        self._next_ping = now
        self._last_ping = now
        self._number = 0
        self._told_s = 0.0  # the period told with the last ping
        self._misses = 0  # missed pings after the last answered ping
        self._waiting: list[_Sent] = []  # pings without an answer, in order of sending
        self._missed: dict[int, float] | None = None  # missed pings whose answer may still come: times of sending
        self._smoothed_s, self._deviation_s = -1.0, 0.0  # of round trips; unknown so far
        self._trips = array("f", (UNKNOWN,) * HISTORY)  # round trips of the last pings, at number modulo HISTORY
        self._reordered = 1  # a bit for each of the last answers, below a leading one
        self._highest_answered = 0
        self._answers = 0
        self._answered_at = now
        self._asked_at: float | None = None  # begin of the wait: the first ping with no answer since
        self._excused_s = 0.0  # the part of that wait by which our own turns came late
        self._longest_s = 0.0  # the longest wait that ended with an answer
        self._patience_s = 2 * preset.patience_s + preset.timeout_initial_s  # until answers teach more
        self._suspect_s = self._patience_s / 2  # both before `stretch`
        self._pause_s = preset.interval_s  # before the next ping, after a failure
        self._is_late = False  # our last turn came late
        self._probed_at = NEVER  # the first ping through others since the suspicion
        self._is_vouched = False  # the entity answers through others, and not to us
        self._spread_s = -spread * self._interval_s() if preset.goal_s else spread * preset.interval_s

    @property
    def next_deadline(self) -> float:
        due = self._next_ping
        if self._waiting and self._waiting[0][2] < due:
            due = self._waiting[0][2]
        return due if not self._misses or self.health is Health.FAILED else min(due, self._verdict_at)

    @property
    def sent(self) -> int:
        """The number of the last ping."""
        return self._number

    @property
    def is_overdue(self) -> bool:
        """True if the entity owes an answer and has not failed."""
        return self._misses > 0 and self.health is not Health.FAILED

    def tick(self, now: float) -> tuple[Ping | None, Health | None]:
        """Returns the ping to send now, if one is due, and the entity's health, if it changed."""
        before, late_s = self.health, now - self.next_deadline
        self._is_late = late_s > self.timeout_s / LATE
        if self._is_late:
            self._wait_longer(late_s)
        while self._waiting and self._waiting[0][2] <= now:
            self._judge(*self._waiting.pop(0)[:2], now)
        while self._misses and self.health is not Health.FAILED and now >= self._verdict_at:
            self.health = ENTITY.after((Sign.SILENCE, self.health))
            if self.health is Health.SUSPECTED and self._ours.others:
                self._next_ping, self._probed_at = min(self._next_ping, now), NEVER
        ping = self._ping(now) if now >= self._next_ping else None
        return ping, self.health if self.health is not before else None

    def take_echo(self, number: int, sent_ms: int, now: float) -> Health | None:
        """Takes an answer and returns the entity's health, if it changed. Ignores an echo of a ping never sent, or a
        second echo.
        """
        at = self._take_out(number, sent_ms)
        if at is None:
            return None
        round_trip_s = max(0.0, now - at)
        if number > self._number - HISTORY:
            self._trips[number % HISTORY] = round_trip_s
        self._reordered = self._reordered << 1 | (number < self._highest_answered)
        if self._reordered >= 2 * _LEADING:
            self._reordered = self._reordered % _LEADING | _LEADING
        self._highest_answered = max(self._highest_answered, number)
        self._learn_round_trip(round_trip_s, now)
        self._is_vouched = False
        self._wait_for_the_rest(now)
        before, self.health = self.health, ENTITY.after((Sign.LIFE, self.health))
        return self.health if before is not self.health else None

    def ask_at_once(self, now: float) -> None:
        """Plans the next ping at once: the entity spoke, so it listens now and could not answer before. The caller
        calls `lives` next.
        """
        self._next_ping = min(self._next_ping, now)

    @property
    def every_s(self) -> float:
        """The period in seconds in which the entity should give signs of life unasked; 0 while pings have much to teach
        about its link.
        """
        interval_s, knows = self._interval_s(), self._preset.goal_s or self._answers >= HISTORY
        return max(min(ALIVE_PART * interval_s, interval_s - self.timeout_s), interval_s / 2) if knows else 0.0

    def announced(self, lived_at: float, now: float, asked_within_s: float) -> Health | None:
        """Takes an unasked sign of life and returns the entity's health, if it changed. `lived_at`: by our clock as
        our last ping showed it, so a party holding the sign back gains no time. As clocks differ, the entity is asked
        `asked_within_s` after the last ping.
        """
        lived_at = min(lived_at, now)
        asked_at = self._asked_at
        if asked_at is not None and lived_at <= asked_at:
            return None  # no later than the begin of the wait
        self._answers += 1
        if asked_at is not None or self._answers == EXPERIENCE:
            self._weigh(now)
            self._asked_at, self._excused_s = lived_at if self._waiting else None, 0.0
        self._misses, self._is_vouched = 0, False
        seems_slow = self.timeout_s > self._preset.timeout_initial_s
        if seems_slow or ALIVE_PART * self.every_s >= self._told_s:
            asked_within_s = min(asked_within_s, TOLD_WITHIN_S)
        self._next_ping = max(min(lived_at + self._interval_s(), self._last_ping + asked_within_s), now)
        before, self.health = self.health, ENTITY.after((Sign.LIFE, self.health))
        return self.health if before is not self.health else None

    def lives(self, now: float) -> Health | None:
        """Takes another sign of life nobody can forge, and returns the entity's health, if it changed. Its delay is
        not measured.
        """
        self._asked_at, self._excused_s = now if self._waiting else None, 0.0
        if self._misses:
            self._misses = 0
            self._next_ping = max(self._last_ping + self._interval_s(), now)
        elif self._preset.goal_s or self._answers >= EXPERIENCE:  # else pings have much to teach about the link
            self._next_ping = max(self._next_ping, now + self._interval_s() + self._spread_s)
        self._is_vouched = False
        before, self.health = self.health, ENTITY.after((Sign.LIFE, self.health))
        return self.health if before is not self.health else None

    def vouched(self, number: int, sent_ms: int, now: float) -> Health | None:
        """Takes an answer through another witness: the entity lived when the ping went, and is no more than suspected.
        Returns its health, if it changed or the way is new. Ignores an echo of a ping never sent.
        """
        at = self._sent_at(number, sent_ms)
        if at is None or self.health is Health.ALIVE:
            return None
        assert self._asked_at is not None, "it missed something"
        if at > self._asked_at:
            self._asked_at, self._excused_s = at, 0.0
        is_news = not self._is_vouched or self.health is Health.FAILED
        self._is_vouched, self._pause_s = True, self._preset.interval_s
        self.health = ENTITY.after((Sign.VOUCHER, self.health))
        self._next_ping = min(self._next_ping, max(now, self._last_ping + self._repeat_s(now)))
        return self.health if is_news else None

    def connection_ended(self, now: float) -> None:
        """Takes note that the connection ended: the entity is asked at once, and the wait begins now, whatever the
        interval.
        """
        self._next_ping = min(self._next_ping, now)
        if self._asked_at is None:
            self._asked_at, self._excused_s = now, 0.0
        self._misses = max(self._misses, 1)

    @property
    def metrics(self) -> PingMetrics:
        known = [trip for trip in self._in_order() if trip != UNKNOWN]
        answers = [trip for trip in known if trip != LOST]
        jumps = [abs(later - earlier) for earlier, later in pairwise(answers)]
        came = self._reordered.bit_length() - 1
        return PingMetrics(
            loss_rate=1 - len(answers) / len(known) if known else 0.0,
            latency_s=sum(answers) / len(answers) if answers else None,
            jitter_s=sum(jumps) / len(jumps) if jumps else None,
            reordered_rate=(self._reordered.bit_count() - 1) / came if came else 0.0,
        )

    # -------------------------------------------------------------------------------------------- details

    @property
    def _verdict_at(self) -> float:
        """The time at which health gets worse if no sign of life comes before."""
        assert self._asked_at is not None, "it missed something"
        waits_s = self._patience_s if self.health is Health.SUSPECTED else self._suspect_s
        at = self._asked_at + self._excused_s + waits_s * self._ours.stretch
        if self.health is Health.SUSPECTED and self._ours.others:
            return max(at, self._probed_at + self.timeout_s)
        return at

    def _in_order(self) -> array[float]:
        oldest = (self._number + 1) % HISTORY
        return self._trips[oldest:] + self._trips[:oldest]

    def _take_out(self, number: int, sent_ms: int) -> float | None:
        """Takes out the ping an answer echoes, and returns the time it was sent; None if there is none or it was
        answered.
        """
        for place, (sent, at, _) in enumerate(self._waiting):
            if sent == number:
                if sent_ms == int(at * 1000):
                    del self._waiting[place]
                    return at
                return None
        missed = self._missed
        if missed is None or number not in missed or sent_ms != int(missed[number] * 1000):
            return None
        return missed.pop(number)

    def _sent_at(self, number: int, sent_ms: int) -> float | None:
        """Returns the time at which an unanswered ping with this number and time was sent; None if there is none."""
        waiting = (at for sent, at, _ in self._waiting if sent == number)
        at = next(waiting, None if self._missed is None else self._missed.get(number))
        return at if at is not None and sent_ms == int(at * 1000) else None

    def _ping(self, now: float) -> Ping:
        self._number += 1
        missed_at, waiting = now + self.timeout_s, self._waiting
        if waiting:
            missed_at = max(missed_at, waiting[-1][2])
        waiting.append((self._number, now, missed_at))
        missed = self._missed
        if missed and len(waiting) + len(missed) > OUTSTANDING_MAX:
            del missed[next(iter(missed))]
        if self._asked_at is None:
            self._asked_at, self._excused_s = now, 0.0
        self._last_ping, self._told_s = now, self.every_s
        if self._probed_at == NEVER:
            self._probed_at = now
        if self.health is Health.FAILED:
            self._next_ping, self._pause_s = now + self._pause_s, min(2 * self._pause_s, AFTER_FAILURE_S)
        else:
            pause_s = self._repeat_s(now) if self._misses else self._interval_s() + max(self._spread_s, 0.0)
            self._next_ping = now + pause_s
        self._spread_s = 0.0
        return Ping(self._number, int(now * 1000))

    def _interval_s(self) -> float:
        if self._preset.goal_s:
            left_s = GOAL_PART * self._preset.goal_s - self._patience_s
            return max(left_s, GOAL_LEAST * self._preset.goal_s) * self._ours.stretch
        newcomer = self._number < HISTORY and not self._is_late  # a busy broker does not ask for more
        return self._preset.interval_s / 2 if newcomer else self._preset.interval_s * self._ours.stretch

    def _repeat_s(self, now: float) -> float:
        """Returns the pause before the next ping after a miss: short on a known link; longer otherwise, since more
        traffic could hold the answers back.
        """
        if self._is_vouched:
            return self._patience_s / 4 * self._ours.stretch
        assert self._asked_at is not None, "it missed something"
        waited_s = now - self._asked_at
        knows = self._answers >= HISTORY and not self._is_late
        least_s = self._preset.interval_min_s if knows else self._preset.interval_s / 4
        return min(max(waited_s / REPEAT, least_s), self._preset.interval_s) * self._ours.stretch

    def _judge(self, number: int, at: float, now: float) -> None:
        """Takes note that a ping's timeout passed."""
        if self._missed is None:
            self._missed = {}
        self._missed[number] = at
        if number > self._number - HISTORY:
            self._trips[number % HISTORY] = LOST
        if number < self._highest_answered:
            return  # a loss, and no silence: a later ping was answered
        self._misses += 1
        if self.health is not Health.FAILED:
            self._next_ping = min(self._next_ping, self._last_ping + self._repeat_s(now))

    def _wait_longer(self, late_s: float) -> None:
        """Extends waits because our own turn came late, and answers may lie unread: while this broker has too much to
        do, it declares nobody dead, up to `timeout_max_s` for each ping and twice as long for each wait.
        """
        longest_s = self._preset.timeout_max_s
        self._excused_s = min(self._excused_s + late_s, 2 * longest_s)
        self._waiting = [
            (number, at, min(missed_at + late_s, at + longest_s)) for number, at, missed_at in self._waiting
        ]

    def _learn_round_trip(self, round_trip_s: float, now: float) -> None:
        """Updates the smoothed round trip and its deviation (RFC 6298, section 2)."""
        smoothed, deviation = self._smoothed_s, self._deviation_s
        seems_slow = smoothed > self._preset.timeout_initial_s and self._answers < EXPERIENCE
        if smoothed < 0 or (seems_slow and QUICK * round_trip_s < smoothed):
            smoothed, deviation = round_trip_s, round_trip_s / 2
        else:
            deviation += (abs(round_trip_s - smoothed) - deviation) / 4
            smoothed += (round_trip_s - smoothed) / 8
        self._smoothed_s, self._deviation_s = smoothed, deviation
        self._answers += 1
        self._weigh(now)

    def _weigh(self, now: float) -> None:
        """Updates the longest wait, the patience and the timeout."""
        preset = self._preset
        longest_s = self._longest_s * max(1 - (now - self._answered_at) / LONGEST_LIFE_S, 0.0)
        self._answered_at = now
        if self._asked_at is not None:
            waited_s = now - self._asked_at - self._excused_s
            if waited_s > SURVIVED_MAX_S:
                self._answers = 0
            elif waited_s > longest_s:
                longest_s = waited_s
        self._longest_s = longest_s
        usual_s = min(self._smoothed_s + max(4 * self._deviation_s, preset.margin_s), preset.timeout_max_s)
        if self._smoothed_s < 0:
            usual_s = preset.timeout_initial_s
        if self._answers < EXPERIENCE:
            patience_s = 2 * preset.patience_s + usual_s
        else:
            patience_s = min(preset.patience_s, STEADY * max(longest_s, preset.margin_s))
        patience_s = preset.caution * max(patience_s, LONGER * longest_s)
        self._suspect_s = max(patience_s / 2, preset.caution * longest_s)
        self._patience_s = max(patience_s, preset.floor_s)
        self.timeout_s = min(usual_s, patience_s / 2)

    def _wait_for_the_rest(self, now: float) -> None:
        """Begins a new wait for the pings sent after the answered ping: an answer is a sign of life."""
        is_over = self._highest_answered == self._number
        self._asked_at, self._excused_s = None if is_over else now, 0.0
        if self._misses:
            self._misses = sum(number > self._highest_answered for number in self._missed or ())
            self._pause_s = self._preset.interval_s
            pause_s = self._preset.interval_min_s if self._misses else self._interval_s()
            self._next_ping = max(self._last_ping + pause_s, now)
