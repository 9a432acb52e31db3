"""One entity's pings: when the next one goes, which are missed, whether the entity is suspected or has failed (B5).

A ping has a number and the time at which it was sent, by the pinging broker's clock; the entity echoes both, so that
its own clock says nothing. A ping is *missed* when its timeout passes without an answer; a later one still counts.
Misses in a row shorten the interval, `suspect_after` of them make the entity suspected, `fail_after` more make it
failed, and any answer brings it back. After a failure pings go on, less and less often. What an entity survived
before is no death: FAILED waits until the silence is longer than the longest that it came back from of late.

Most links are better than the worst one that these counts are for. Where a network has kept no answer back for long,
over `EXPERIENCE` pings, `PATIENCE` times its longest wait proves as much: if long waits get rarer exponentially, the
longest of N is exceeded so many times with a chance of N to the power of minus `PATIENCE`. Then a ping is missed after
half of that, the next one follows at once, one miss is suspicious, and two are a failure. The longest wait of a lossy
link includes its losses, so that it never gets there.

    timeout   = smoothed round trip + max(4 x its deviation, margin_s), at most timeout_max_s    (RFC 6298, section 2)
    interval  = interval_s, halved for each miss in a row, not below interval_min_s; half of interval_s until ten pings
                went, since nothing is known of a newcomer, unless our turns come late; doubled up to AFTER_FAILURE_S
                after a failure

The last ten pings give loss, latency and reordering (NETWORK_METRICS, B4). Not here: who is told (`traces`), other
signs of life, votes of several witnesses (`witnessing`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import exp
from typing import NamedTuple

HISTORY = 10  # pings that metrics are made of
OUTSTANDING_MAX = 64  # pings remembered for their answers: 16 s of them at the shortest interval
AFTER_FAILURE_S = 60.0
SURVIVED_FACTOR = 1.25  # how much longer than a survived silence one must be ...
SURVIVED_LIFE_S = 3600.0  # ... that fades with time, to its third in an hour
EXPERIENCE = 240  # answers: four minutes of them
PATIENCE = 4
STEADIEST = 5  # no longest wait is believed to be shorter than this part of the preset's margin
LATE = 4  # our own turn is late when it comes behind its time by this part of a timeout
SURVIVED_MAX_S = 10.0  # an entity that came back after longer than that was dead


@dataclass(frozen=True, slots=True)
class Preset:
    """Times for one kind of network, in seconds. `timeout_initial_s` counts until the first answer."""

    name: str
    interval_s: float = 1.0
    interval_min_s: float = 0.25
    timeout_initial_s: float = 1.0
    margin_s: float = 0.2
    timeout_max_s: float = 5.0
    suspect_after: int = 3
    fail_after: int = 3

    def interval_after(self, misses: int) -> float:
        """The pause before the next ping after so many misses in a row."""
        return max(self.interval_s / (1 << min(misses, 32)), self.interval_min_s)


LAN = Preset("lan")
WAN = Preset("wan", timeout_initial_s=2.0, margin_s=0.5)
CELLULAR = Preset("cellular", interval_s=5.0, interval_min_s=1.0, timeout_initial_s=5.0, margin_s=2.0,
                  timeout_max_s=15.0)  # fmt: skip
PRESETS = {preset.name: preset for preset in (LAN, WAN, CELLULAR)}


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
class Metrics:
    """Of the last ten pings whose fate is known. Latencies in seconds, None without an answer; rates 0 to 1."""

    loss_rate: float
    latency_s: float | None
    jitter_s: float | None
    reordered_rate: float


@dataclass(slots=True)
class _Sent:
    """A ping whose answer may come. `missed`: its timeout passed."""

    at: float
    missed: bool = False


class Pulse:
    """One entity. `tick` when `next_deadline` is reached; `answered` for every answer.

    A broker has thousands of these and does little else: what an answer changes is computed when it comes, once.
    """

    __slots__ = (
        "_answered_at", "_answers", "_asked_at", "_fates", "_highest_answered", "_is_late", "_is_quick", "_last_ping",
        "_longest", "_misses", "_next_ping", "_number", "_patience_s", "_preset", "_reordered", "_round_trip", "_sent",
        "_spread_s", "_survived", "_unjudged", "_usual_s", "health", "timeout_s",
    )  # fmt: skip

    def __init__(self, preset: Preset, now: float, spread: float = 0.0) -> None:
        """The first ping is due at once; the pause behind it is longer by `spread` of an interval, so that those who
        came together are not pinged together."""
        self.health = Health.ALIVE
        self.timeout_s = preset.timeout_initial_s
        """How long the next ping's answer may take."""
        self._usual_s = self.timeout_s  # the same if nothing is known of long waits
        self._preset = preset
        self._next_ping = now
        self._last_ping = now
        self._spread_s = spread * preset.interval_s
        self._number = 0
        self._misses = 0  # in a row
        self._sent: dict[int, _Sent] = {}  # by number, in order of sending
        self._unjudged: deque[tuple[float, int]] = deque()  # (when it is missed, number), in order of sending
        self._round_trip: tuple[float, float] | None = None  # smoothed, deviation
        self._fates: deque[tuple[int, float | None]] = deque(maxlen=HISTORY)  # (number, round trip or None)
        self._highest_answered = 0
        self._answered_at = now  # what was sent last of what was answered
        self._survived = (0.0, now)  # the longest silence that it came back from, and when
        self._asked_at: float | None = None  # the first ping behind which there was no answer yet
        self._longest = (0.0, now)  # the longest wait from such a ping to an answer, and when
        self._answers = 0
        self._is_quick = False
        self._is_late = False  # our last turn came late
        self._patience_s = 0.0
        self._reordered: deque[bool] = deque(maxlen=HISTORY)

    @property
    def next_deadline(self) -> float:
        return min(self._next_ping, self._unjudged[0][0]) if self._unjudged else self._next_ping

    @property
    def sent(self) -> int:
        """Number of the last ping."""
        return self._number

    def tick(self, now: float) -> tuple[Ping | None, Health | None]:
        """The ping to send now, if one is due, and the entity's health, if it changed."""
        before, late_s = self.health, now - self.next_deadline
        self._is_late = late_s > self.timeout_s / LATE
        if self._is_late:
            self._wait_longer(late_s)
        while self._unjudged and self._unjudged[0][0] <= now:
            self._judge(*self._unjudged.popleft())
        ping = self._ping(now) if now >= self._next_ping else None
        return ping, self.health if self.health is not before else None

    def answered(self, number: int, sent_ms: int, now: float) -> Health | None:
        """An answer came: the entity's health, if it changed. An echo of what was never sent, or twice, is ignored."""
        sent = self._sent.get(number)
        if sent is None or sent_ms != int(sent.at * 1000):
            return None
        del self._sent[number]
        while self._unjudged and self._unjudged[0][1] not in self._sent:
            self._unjudged.popleft()
        round_trip_s = max(0.0, now - sent.at)
        self._measure(round_trip_s)
        if sent.missed:  # it was late, not lost
            self._fates = deque([(n, round_trip_s if n == number else s) for n, s in self._fates], maxlen=HISTORY)
        else:
            self._fates.append((number, round_trip_s))
        self._reordered.append(number < self._highest_answered)
        self._highest_answered = max(self._highest_answered, number)
        if self._misses:
            self._survive(now)
        self._answered_at = now
        self._misses = 0
        self._learn(number, now)
        self.timeout_s = self._patience_s / 2 if self._is_quick else self._usual_s
        before, self.health = self.health, Health.ALIVE
        if before is Health.FAILED:
            self._next_ping = min(self._next_ping, now + self._interval_s())
        return self.health if before is not self.health else None

    @property
    def metrics(self) -> Metrics:
        answers = [seconds for _, seconds in self._fates if seconds is not None]
        jumps = [abs(later - earlier) for earlier, later in pairwise(answers)]
        return Metrics(
            loss_rate=1 - len(answers) / len(self._fates) if self._fates else 0.0,
            latency_s=sum(answers) / len(answers) if answers else None,
            jitter_s=sum(jumps) / len(jumps) if jumps else None,
            reordered_rate=sum(self._reordered) / len(self._reordered) if self._reordered else 0.0,
        )

    # -------------------------------------------------------------------------------------------- details

    def _ping(self, now: float) -> Ping:
        self._number += 1
        self._sent[self._number] = _Sent(now)
        if len(self._sent) > OUTSTANDING_MAX:
            del self._sent[next(iter(self._sent))]
        missed_at = now + self.timeout_s
        if self._unjudged:
            missed_at = max(missed_at, self._unjudged[-1][0])
        self._unjudged.append((missed_at, self._number))
        if self._asked_at is None:
            self._asked_at = now
        self._last_ping, self._next_ping = now, now + self._interval_s() + self._spread_s
        self._spread_s = 0.0
        return Ping(self._number, int(now * 1000))

    @property
    def _fail_after(self) -> int:
        """Misses in a row."""
        return self._preset.suspect_after + self._preset.fail_after

    def _interval_s(self) -> float:
        if self.health is Health.FAILED:
            beyond = max(self._misses - self._fail_after, 0)
            return min(self._preset.interval_s * (1 << min(beyond, 32)), AFTER_FAILURE_S)
        if self._is_quick and self._misses:
            return self._patience_s / 2
        newcomer = self._number < HISTORY and not self._is_late  # who has too much to do does not ask for more
        return self._preset.interval_after(max(self._misses, 1) if newcomer else self._misses)

    def _judge(self, now: float, number: int) -> None:
        """Its timeout passed."""
        sent = self._sent.get(number)
        if sent is None:
            return  # answered, or so old that it was forgotten
        sent.missed = True
        self._fates.append((number, None))
        self._misses += 1
        if self._is_quick:
            self.health = Health.SUSPECTED if self._misses == 1 else Health.FAILED
        elif self._misses >= self._fail_after and now - self._answered_at >= self._bearable_s(now):
            self.health = Health.FAILED
        elif self._misses >= self._preset.suspect_after:
            self.health = Health.SUSPECTED
        self._next_ping = min(self._next_ping, self._last_ping + self._interval_s())

    def _wait_longer(self, late_s: float) -> None:
        """We come late ourselves, and answers may lie where nobody read them: while this broker has too much to do,
        it holds nobody for dead, up to `timeout_max_s` for each ping."""
        waiting, longest_s = self._unjudged, self._preset.timeout_max_s
        self._unjudged = deque()
        for at, number in waiting:
            sent = self._sent.get(number)
            if sent is not None:
                self._unjudged.append((max(at, min(at + late_s, sent.at + longest_s)), number))

    def _learn(self, number: int, now: float) -> None:
        """How long an answer was waited for; whether that is a habit."""
        self._answers += 1
        if self._asked_at is None:
            return  # a later ping was answered before
        waited_s, longest_s = now - self._asked_at, _faded(self._longest, now)
        if waited_s > longest_s:
            longest_s = min(waited_s, SURVIVED_MAX_S)
            self._longest = (longest_s, now)
        self._asked_at = None
        if number != self._number:
            self._asked_at = next((sent.at for n, sent in self._sent.items() if n > number), None)
        self._patience_s = PATIENCE * max(longest_s, self._preset.margin_s / STEADIEST)
        self._is_quick = self._answers >= EXPERIENCE and self._patience_s / 2 < self._usual_s

    def _survive(self, now: float) -> None:
        silence_s = now - self._answered_at
        if _faded(self._survived, now) < silence_s <= SURVIVED_MAX_S:
            self._survived = (silence_s, now)

    def _bearable_s(self, now: float) -> float:
        """A silence that is no longer than that proves nothing."""
        return SURVIVED_FACTOR * _faded(self._survived, now)

    def _measure(self, seconds: float) -> None:
        """RFC 6298, section 2: smoothed round trip and its deviation."""
        if self._round_trip is None:
            smoothed, deviation = seconds, seconds / 2
        else:
            smoothed, deviation = self._round_trip
            deviation += (abs(seconds - smoothed) - deviation) / 4
            smoothed += (seconds - smoothed) / 8
        self._round_trip = (smoothed, deviation)
        self._usual_s = min(smoothed + max(4 * deviation, self._preset.margin_s), self._preset.timeout_max_s)


def _faded(longest: tuple[float, float], now: float) -> float:
    """What was longest then, by now."""
    seconds, at = longest
    return seconds * exp((at - now) / SURVIVED_LIFE_S)


def detection_s(preset: Preset, round_trip_s: float, answers: int = 100) -> float:
    """The longest time from death to FAILED where every round trip took `round_trip_s`: just after an answer."""
    pulse = Pulse(preset, 0.0)
    now = died = 0.0
    while pulse.health is not Health.FAILED:
        now = pulse.next_deadline
        ping, _ = pulse.tick(now)
        if ping is not None and ping.number <= answers:
            pulse.answered(ping.number, ping.sent_ms, now + round_trip_s)
            died = now + round_trip_s
    return now - died
