"""One entity's pings: when the next one goes, which are missed, whether the entity is suspected or has failed (B5).

A ping has a number and the time at which it was sent, by the pinging broker's clock; the entity echoes both, so that
its own clock says nothing. A ping is *missed* when its timeout passes without an answer; a later one still counts.
After a miss pings follow fast, and any answer brings the entity back. After a failure they go on, ever more rarely.

What proves a death is how long nothing came, not how many pings were missed: behind a retransmission of TCP or in a
burst of losses all of them are late together, and ten prove no more than one. Where losses are single ones, the fast
pings end the wait soon. So a link is known by its *waits*, from the first ping without an answer to any answer. A wait
that is longer by half than the longest of late is a death. Short waits prove little about longer ones: up to
`patience_s` nobody is dead, unless for `EXPERIENCE` answers no wait was longer than a part of that; if long waits get
rarer exponentially, the longest of N is exceeded `STEADY` times with a chance of N to the power of minus `STEADY`.

    timeout   = smoothed round trip + max(4 x its deviation, margin_s), at most timeout_max_s    (RFC 6298, section 2),
                and at most half of the patience, so that two pings are asked. One answer QUICK times as fast as usual
                tells a newcomer that came in a rush from a slow link, and what was learned of it begins anew
    patience  = caution x max(1.5 x longest, 2 patience_s + timeout), where the longest wait fades, to its
                third in an hour; after EXPERIENCE answers caution x max(1.5 x longest, min(patience_s, 3 x longest)),
                where no longest wait is believed to be shorter than margin_s
    suspected after half of the patience without an answer, and not before the longest wait; failed after all of it, and
                never before `floor_s`: a program that pauses for half a second is no death, however good its link.
                Where there are others to ask through (`self_health.others`), not before a ping went through them, and
                a timeout passed. Who answers only there is suspected as long as it does: the link is broken, not it
    every     = interval - max(interval / 10, timeout), at least half of it: who was told so says by itself that it
                lives, and is asked when that does not come within the interval, or was not asked for long; who seems
                slow, or may speak more rarely than it was told, is asked within TOLD_WITHIN_S
    interval  = interval_s, half of it until ten pings went, since nothing is known of a newcomer, unless our turns come
                late; with a goal (`within`) what the patience leaves of most of it; at once after the first miss,
                then an eighth of the wait so far, at least interval_min_s, or a
                quarter of interval_s as long as it is a newcomer or our turns come late, since so many pings might be
                what keeps the answers back; doubled up to AFTER_FAILURE_S after a failure; a
                quarter of the patience while it answers elsewhere only

While the broker itself does badly (`self_health`) patience and intervals are longer.

The last ten pings give loss, latency and reordering (NETWORK_METRICS, B4). Not here: who is told (`traces`), other
signs of life, votes of several witnesses (`witnessing`).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from bridge.traces.presets import Preset
from bridge.traces.self_health import SelfHealth

HISTORY = 10  # pings that metrics are made of
OUTSTANDING_MAX = 64  # pings remembered for their answers: until the longest patience ends, some 40 are sent
AFTER_FAILURE_S = 60.0
LONGER = 1.5  # a wait is a death when it is so much longer than the longest one that was none
STEADY = 3  # ... or, where all of them are short, so much longer than that
EXPERIENCE = 240  # answers: four minutes of them
LONGEST_LIFE_S = 3600.0  # in which the longest wait fades to its third
SURVIVED_MAX_S = 10.0  # an entity that came back after longer than that was dead, and is a newcomer
REPEAT = 8  # pings follow each other by this part of the wait so far
GOAL_PART = 0.95  # of a goal; the rest is for our own turns
GOAL_LEAST = 0.25  # ... of which the interval is never a smaller part
ALIVE_PART = 0.9  # of the interval in which an entity says by itself that it lives; the rest is for the way
TOLD_WITHIN_S = 30.0
QUICK = 4
NEVER = float("inf")
LATE = 4  # our own turn is late when it comes behind its time by this part of a timeout


UNKNOWN, LOST = -2.0, -1.0  # instead of a round trip
_LEADING = 1 << HISTORY
_Sent: TypeAlias = tuple[int, float, float]  # a ping's number, when it went, when it is missed


class Health(StrEnum):
    """What the broker holds of an entity."""

    ALIVE = "alive"
    SUSPECTED = "suspected"
    FAILED = "failed"


class Ping(NamedTuple):
    """To be sent now. `sent_ms`: the broker's clock."""

    number: int
    sent_ms: int


@dataclass(frozen=True, slots=True)
class PingMetrics:
    """Of the last ten pings whose fate is known. Latencies in seconds, None without an answer; rates 0 to 1."""

    loss_rate: float
    latency_s: float | None
    jitter_s: float | None
    reordered_rate: float


class Pulse:
    """One entity. `tick` when `next_deadline` is reached; `answered` for every answer.

    A broker has tens of thousands of these and does little else: what an answer changes is computed when it comes,
    once, and a ping that is answered in time leaves no object behind.
    """

    __slots__ = (
        "_answered_at", "_answers", "_asked_at", "_deviation_s", "_excused_s", "_highest_answered", "_is_late",
        "_is_vouched", "_last_ping", "_longest_s", "_missed", "_misses", "_next_ping", "_number", "_ours",
        "_patience_s", "_pause_s", "_preset", "_probed_at", "_reordered", "_smoothed_s", "_spread_s", "_suspect_s",
        "_told_s", "_trips", "_waiting", "health", "timeout_s",
    )  # fmt: skip

    def __init__(self, preset: Preset, now: float, spread: float = 0.0, ours: SelfHealth | None = None) -> None:
        """The first ping is due at once; the pause behind it is longer by `spread` of an interval, or the one before it
        is shorter where there is a goal: who came together is not pinged together. `ours`: how well the broker does."""
        self._ours = ours or SelfHealth()
        self.health = Health.ALIVE
        self.timeout_s = preset.timeout_initial_s
        """How long the next ping's answer may take."""
        self._preset = preset
        self._next_ping = now
        self._last_ping = now
        self._number = 0
        self._told_s = 0.0  # with the last ping
        self._misses = 0  # of pings behind the last answered one
        self._waiting: list[_Sent] = []  # for their answers, in order of sending
        self._missed: dict[int, float] | None = None  # whose timeout passed and that may still come: when they went
        self._smoothed_s, self._deviation_s = -1.0, 0.0  # of round trips; nothing is known yet
        self._trips = array("f", (UNKNOWN,) * HISTORY)  # of the last pings, each at its number modulo HISTORY
        self._reordered = 1  # a bit for each of the last answers, below a leading one
        self._highest_answered = 0
        self._answers = 0
        self._answered_at = now
        self._asked_at: float | None = None  # since when we wait: the first ping without an answer behind it
        self._excused_s = 0.0  # of that wait, we came late ourselves
        self._longest_s = 0.0  # wait that ended with an answer
        self._patience_s = 2 * preset.patience_s + preset.timeout_initial_s  # nothing is known yet
        self._suspect_s = self._patience_s / 2  # both before `stretch`
        self._pause_s = preset.interval_s  # before the next ping, after a failure
        self._is_late = False  # our last turn came late
        self._probed_at = NEVER  # when the first ping went through others, since it is suspected
        self._is_vouched = False  # it answers through others, and not to us
        self._spread_s = -spread * self._interval_s() if preset.goal_s else spread * preset.interval_s

    @property
    def next_deadline(self) -> float:
        due = self._next_ping
        if self._waiting and self._waiting[0][2] < due:
            due = self._waiting[0][2]
        return due if not self._misses or self.health is Health.FAILED else min(due, self._verdict_at)

    @property
    def sent(self) -> int:
        """Number of the last ping."""
        return self._number

    @property
    def is_overdue(self) -> bool:
        """Whether it missed something and is not given up."""
        return self._misses > 0 and self.health is not Health.FAILED

    def tick(self, now: float) -> tuple[Ping | None, Health | None]:
        """The ping to send now, if one is due, and the entity's health, if it changed."""
        before, late_s = self.health, now - self.next_deadline
        self._is_late = late_s > self.timeout_s / LATE
        if self._is_late:
            self._wait_longer(late_s)
        while self._waiting and self._waiting[0][2] <= now:
            self._judge(*self._waiting.pop(0)[:2], now)
        while self._misses and self.health is not Health.FAILED and now >= self._verdict_at:
            self.health = Health.FAILED if self.health is Health.SUSPECTED else Health.SUSPECTED
            if self.health is Health.SUSPECTED and self._ours.others:
                self._next_ping, self._probed_at = min(self._next_ping, now), NEVER
        ping = self._ping(now) if now >= self._next_ping else None
        return ping, self.health if self.health is not before else None

    def answered(self, number: int, sent_ms: int, now: float) -> Health | None:
        """An answer came: the entity's health, if it changed. An echo of what was never sent, or twice, is ignored."""
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
        self._learn(round_trip_s, now)
        self._is_vouched = False
        self._wait_for_the_rest(now)
        before, self.health = self.health, Health.ALIVE
        return self.health if before is not self.health else None

    def begin(self, now: float) -> None:
        """It spoke, and listens from now on: no ping before that could be answered. `lives` follows."""
        self._next_ping = min(self._next_ping, now)

    @property
    def every_s(self) -> float:
        """How often it should say by itself that it lives; 0: there is much to learn of its link by asking."""
        interval_s, knows = self._interval_s(), self._preset.goal_s or self._answers >= HISTORY
        return max(min(ALIVE_PART * interval_s, interval_s - self.timeout_s), interval_s / 2) if knows else 0.0

    def announced(self, lived_at: float, now: float, asked_within_s: float) -> Health | None:
        """It says by itself that it lived at `lived_at`, by our clock as our last ping showed it, so whoever holds that
        back wins no time: its health, if it changed. As clocks differ, it is asked so long after it was."""
        lived_at = min(lived_at, now)
        asked_at = self._asked_at
        if asked_at is not None and lived_at <= asked_at:
            return None  # as old as what was known when the wait began
        self._answers += 1
        if asked_at is not None or self._answers == EXPERIENCE:
            self._weigh(now)
            self._asked_at, self._excused_s = lived_at if self._waiting else None, 0.0
        self._misses, self._is_vouched = 0, False
        seems_slow = self.timeout_s > self._preset.timeout_initial_s
        if seems_slow or ALIVE_PART * self.every_s >= self._told_s:
            asked_within_s = min(asked_within_s, TOLD_WITHIN_S)
        self._next_ping = max(min(lived_at + self._interval_s(), self._last_ping + asked_within_s), now)
        before, self.health = self.health, Health.ALIVE
        return self.health if before is not self.health else None

    def lives(self, now: float) -> Health | None:
        """Something else came of it that nobody can forge: its health, if it changed. Not judged by how late it is."""
        self._asked_at, self._excused_s = now if self._waiting else None, 0.0
        if self._misses:
            self._misses = 0
            self._next_ping = max(self._last_ping + self._interval_s(), now)
        elif self._preset.goal_s or self._answers >= EXPERIENCE:  # else there is much to learn of its link by asking
            self._next_ping = max(self._next_ping, now + self._interval_s() + self._spread_s)
        self._is_vouched = False
        before, self.health = self.health, Health.ALIVE
        return self.health if before is not self.health else None

    def vouched(self, number: int, sent_ms: int, now: float) -> Health | None:
        """Through another witness it answered what we asked it there: it lived when we did, and is no more than
        suspected. Its health, if it changed or this is news. An echo of what was never sent is ignored."""
        at = self._sent_at(number, sent_ms)
        if at is None or self.health is Health.ALIVE:
            return None
        assert self._asked_at is not None, "it missed something"
        if at > self._asked_at:
            self._asked_at, self._excused_s = at, 0.0
        is_news = not self._is_vouched or self.health is Health.FAILED
        self._is_vouched, self.health, self._pause_s = True, Health.SUSPECTED, self._preset.interval_s
        self._next_ping = min(self._next_ping, max(now, self._last_ping + self._repeat_s(now)))
        return self.health if is_news else None

    def lost(self, now: float) -> None:
        """Its connection ended: it is asked at once, and waited for from now on, whatever the interval is."""
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
        """When health gets worse if nothing comes before."""
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
        """When the ping went that is answered with these; None: none did, or it was answered."""
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
        """When the ping went that has these, and was not answered directly."""
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
        newcomer = self._number < HISTORY and not self._is_late  # who has too much to do does not ask for more
        return self._preset.interval_s / 2 if newcomer else self._preset.interval_s * self._ours.stretch

    def _repeat_s(self, now: float) -> float:
        """Fast where we know what to expect; else so much traffic could be what keeps the answers back."""
        if self._is_vouched:
            return self._patience_s / 4 * self._ours.stretch
        assert self._asked_at is not None, "it missed something"
        waited_s = now - self._asked_at
        knows = self._answers >= HISTORY and not self._is_late
        least_s = self._preset.interval_min_s if knows else self._preset.interval_s / 4
        return min(max(waited_s / REPEAT, least_s), self._preset.interval_s) * self._ours.stretch

    def _judge(self, number: int, at: float, now: float) -> None:
        """Its timeout passed."""
        if self._missed is None:
            self._missed = {}
        self._missed[number] = at
        if number > self._number - HISTORY:
            self._trips[number % HISTORY] = LOST
        if number < self._highest_answered:
            return  # lost, and no silence
        self._misses += 1
        if self.health is not Health.FAILED:
            self._next_ping = min(self._next_ping, self._last_ping + self._repeat_s(now))

    def _wait_longer(self, late_s: float) -> None:
        """We come late ourselves, and answers may lie where nobody read them: while this broker has too much to do,
        it holds nobody for dead, up to `timeout_max_s` for each ping and twice that for each wait."""
        longest_s = self._preset.timeout_max_s
        self._excused_s = min(self._excused_s + late_s, 2 * longest_s)
        self._waiting = [
            (number, at, min(missed_at + late_s, at + longest_s)) for number, at, missed_at in self._waiting
        ]

    def _learn(self, round_trip_s: float, now: float) -> None:
        """RFC 6298, section 2: smoothed round trip and its deviation."""
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
        """How long a sign of life was waited for, and will be."""
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
        """An answer is a sign of life: for pings that went behind it we wait anew."""
        is_over = self._highest_answered == self._number
        self._asked_at, self._excused_s = None if is_over else now, 0.0
        if self._misses:
            self._misses = sum(number > self._highest_answered for number in self._missed or ())
            self._pause_s = self._preset.interval_s
            pause_s = self._preset.interval_min_s if self._misses else self._interval_s()
            self._next_ping = max(self._last_ping + pause_s, now)
