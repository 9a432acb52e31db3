"""How soon a death is told at equal false alarms: our pings, a fixed timeout, phi-accrual (bare, and Akka's with its
pause), Chen's detector, memberlist's probes; on the same links.

A link loses, delays, bursts and drifts as its seed says. Each detector sees the same kind of entity on it: ours pings
once a second, and faster on misses; the other two judge the heartbeats that the entity sends once a second, as
libraries that use them do. Living entities give false alarms an hour; dying ones the time from death to verdict, at
moments spread evenly. Fixed timeout and phi-accrual get the smallest parameter with which they raise no more false
alarms than ours did with its preset: one parameter for all links, as ours has, and besides the best one for each link,
which nobody knows beforehand. Then ours gets the same favour: its smallest `Preset.caution` for no more false alarms,
and no floor below which no silence is a failure, which is what makes it slower than who is tuned to a good link.

Simulated time: the machine's speed plays no part, and a seed gives the same figures everywhere.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log, log1p, sqrt
from typing import NamedTuple, Protocol

from bridge.devices.life_evidence import Regularity
from bridge.traces.pings import Health, Ping, Pulse
from bridge.traces.presets import LAN, Preset

WARM_UP_S = 60.0
HEARTBEAT_S = 1.0
HOUR_S = 3_600.0
LIVED_S = 300.0  # before a death
DEATHS_OVER_S = 10.0  # they are spread over so long, since pings and heartbeats have their phase
SLICE_S, RUNS_S = 0.3, 0.005  # of a program without processor time
CHEN_WINDOW = 1_000  # heartbeats whose arrival is expected from
AKKA_WINDOW, AKKA_PAUSE_S, AKKA_DEVIATION_S = 1_000, 3.0, 0.1  # its defaults
MEMBERLIST_PROBE_S, MEMBERLIST_TIMEOUT_S = 1.0, 1.0  # its defaults for a LAN: direct and indirect probe in one interval
LONGEST_S = 300.0  # that a verdict is waited for


@dataclass(frozen=True)
class Link:
    """`loss`: of each packet on each way. `burst_s`, `burst_every_s`: mean length and distance of times when all is
    lost. `delay_s`, `jitter_s`: base and mean of the exponential part. `drift`: of the entity's clock.

    `pauses_s`: least and most of how long the entity's program does nothing, once in `pause_every_s`; `starved_s`: how
    long it then runs 5 of every 300 ms only. What it should have said meanwhile comes behind it, late and in order."""

    name: str
    loss: float = 0.0
    burst_s: float = 0.0
    burst_every_s: float = 0.0
    delay_s: float = 0.005
    jitter_s: float = 0.002
    drift: float = 0.0
    pauses_s: tuple[float, float] = (0.0, 0.0)
    pause_every_s: float = 60.0
    starved_s: float = 0.0

    def ways(self, seed: str, until: float) -> tuple[Way, Way]:
        """There and back; a burst is in both, a pause delays what the entity says."""
        silent = bursts(self, seed, until)
        return Way(self, f"{seed} there", silent), Way(self, f"{seed} back", silent, pauses(self, seed, until))


class Connection(Protocol):
    """A link, simulated or recorded."""

    @property
    def name(self) -> str: ...

    @property
    def drift(self) -> float: ...

    def ways(self, seed: str, until: float) -> tuple[OneWay, OneWay]:
        """There and back."""
        ...


class OneWay(Protocol):
    def arrival(self, now: float) -> float | None:
        """When a packet that is sent now arrives; None: it is lost. Calls come in order of time."""
        ...


LINKS = (
    Link("lan"),
    Link("loss 5 %", loss=0.05, delay_s=0.03, jitter_s=0.01),
    Link("loss 20 %", loss=0.20, delay_s=0.03, jitter_s=0.01),
    Link("jitter", loss=0.02, delay_s=0.05, jitter_s=0.15),
    Link("bursts of 1 s", loss=0.01, burst_s=1.0, burst_every_s=60.0, delay_s=0.03, jitter_s=0.02),
    Link("bursts of 3 s", loss=0.01, burst_s=3.0, burst_every_s=300.0, delay_s=0.03, jitter_s=0.02),
    Link("clock drift 5 %", loss=0.05, delay_s=0.03, jitter_s=0.01, drift=0.05),
    Link("hiccups of 0.3-1 s", pauses_s=(0.3, 1.0)),
    Link("starved entity", pause_every_s=300.0, starved_s=15.0),
)


class Way:
    """One direction of a link."""

    def __init__(
        self, link: Link, seed: str, bursts: Sequence[tuple[float, float]], pauses: Sequence[tuple[float, float]] = ()
    ) -> None:
        self._link, self._rng, self._bursts, self._pauses = link, random.Random(seed), bursts, pauses
        self._at = self._paused = 0

    def arrival(self, now: float) -> float | None:
        """When a packet that is sent now arrives; None: it is lost. Calls come in order of time."""
        while self._at < len(self._bursts) and self._bursts[self._at][1] <= now:
            self._at += 1
        in_burst = self._at < len(self._bursts) and self._bursts[self._at][0] <= now
        lost = self._rng.random() < self._link.loss or in_burst
        delay_s = self._link.delay_s + self._rng.expovariate(1 / self._link.jitter_s)
        while self._paused < len(self._pauses) and self._pauses[self._paused][1] <= now:
            self._paused += 1
        if self._paused < len(self._pauses) and self._pauses[self._paused][0] <= now:
            now = self._pauses[self._paused][1]
        return None if lost else now + delay_s


def pauses(link: Link, seed: str, until: float) -> list[tuple[float, float]]:
    """When the entity's program does nothing."""
    rng, now, found = random.Random(f"pauses {seed}"), 0.0, list[tuple[float, float]]()
    while (link.pauses_s[1] or link.starved_s) and now < until:
        now += rng.expovariate(1 / link.pause_every_s)
        ends = now + link.starved_s
        if link.pauses_s[1]:
            ends = now + rng.uniform(*link.pauses_s)
            found.append((now, ends))
        while now < ends and link.starved_s:
            found.append((now, now + SLICE_S - RUNS_S))
            now += SLICE_S
        now = ends
    return found


def bursts(link: Link, seed: str, until: float) -> list[tuple[float, float]]:
    rng, now, found = random.Random(f"bursts {seed}"), 0.0, list[tuple[float, float]]()
    while link.burst_s and now < until:
        now += rng.expovariate(1 / link.burst_every_s)
        length_s = rng.expovariate(1 / link.burst_s)
        found.append((now, now + length_s))
        now += length_s
    return found


class Judgement(NamedTuple):
    """False alarms before the death, seconds from death to verdict, pings or heartbeats sent."""

    alarms: int
    told_s: float | None
    sent: int


def pinged(preset: Preset, link: Connection, seed: str, died: float, until: float) -> Judgement:
    """Our detector; pings sent."""
    there, back = link.ways(seed, until)
    pulse, answers, order = Pulse(preset, 0.0), list[tuple[float, int, Ping]](), 0
    alarms, sent = 0, 0
    while True:
        due = pulse.next_deadline
        if answers and answers[0][0] <= due:
            now, _, ping = heapq.heappop(answers)
            pulse.take_echo(ping.number, ping.sent_ms, now)
            continue
        now = due
        if now > until:
            return Judgement(alarms, None, sent)
        going, health = pulse.tick(now)
        if health is Health.FAILED:
            if now < died:
                alarms += now >= WARM_UP_S
            else:
                return Judgement(alarms, now - died, sent)
        if going is not None:
            sent += 1
            reached = there.arrival(now)
            returned = None if reached is None or reached >= died else back.arrival(reached)
            if returned is not None:
                order += 1
                heapq.heappush(answers, (returned, order, going))


class Beat(float):
    """When a heartbeat arrived, and its number."""

    number: int


def heartbeats(link: Connection, seed: str, died: float, until: float) -> Iterator[Beat]:
    """When the heartbeats of an entity arrive, in order."""
    way = link.ways(seed, until)[1]
    sent, arrivals, number = random.Random(seed).random(), list[Beat](), 0
    while sent < died:
        arrived = way.arrival(sent)
        number += 1
        if arrived is not None:
            beat = Beat(arrived)
            beat.number = number
            arrivals.append(beat)
        sent += HEARTBEAT_S * (1 + link.drift)
    return iter(sorted(arrivals))


def judged(
    verdict: Callable[[float], float | None], heard: Callable[[Beat], None], arrivals: Iterator[Beat], died: float,
    until: float,
) -> Judgement:  # fmt: skip
    """A detector of silences. `verdict`: when the silence that began at the last heartbeat becomes a death."""
    alarms = 0
    for arrived in arrivals:
        at = verdict(arrived)
        if at is not None and at < min(arrived, died):
            alarms += at >= WARM_UP_S
        heard(arrived)
    at = verdict(until)
    told_s = None if at is None or at > until else max(at - died, 0.0)
    return Judgement(alarms, told_s, int(min(died, until) / HEARTBEAT_S))


def fixed(timeout_s: float, link: Connection, seed: str, died: float, until: float) -> Judgement:
    last = [0.0]

    def heard(now: float) -> None:
        last[0] = now

    return judged(lambda now: last[0] + timeout_s, heard, heartbeats(link, seed, died, until), died, until)


def accrual(threshold: float, link: Connection, seed: str, died: float, until: float) -> Judgement:
    source = Regularity()
    return judged(
        lambda now: source.suspicious_at(threshold), source.note_heard, heartbeats(link, seed, died, until), died, until
    )


def chen(alpha_s: float, link: Connection, seed: str, died: float, until: float) -> Judgement:
    """W. Chen, S. Toueg, M. K. Aguilera (2002), section 6: the next arrival is expected where the last ones were, less
    their numbers times the interval, on average; `alpha_s` later it is a death."""
    shifts: deque[float] = deque(maxlen=CHEN_WINDOW)
    last, total = [0], [0.0]

    def heard(beat: Beat) -> None:
        if len(shifts) == CHEN_WINDOW:
            total[0] -= shifts[0]
        shifts.append(beat - beat.number * HEARTBEAT_S)
        total[0] += shifts[-1]
        last[0] = max(last[0], beat.number)

    def verdict(now: float) -> float | None:
        return total[0] / len(shifts) + (last[0] + 1) * HEARTBEAT_S + alpha_s if shifts else None

    return judged(verdict, heard, heartbeats(link, seed, died, until), died, until)


def akka(threshold: float, link: Connection, seed: str, died: float, until: float) -> Judgement:
    """Akka's phi-accrual with its acceptable pause: phi counts from the mean and three seconds more, over intervals
    whose deviation is 100 ms at least; the normal distribution's tail by the logistic curve that Akka takes for it."""
    intervals: deque[float] = deque(maxlen=AKKA_WINDOW)
    last, sums = [0.0], [0.0, 0.0]
    deviations = _akka_deviations(threshold)

    def heard(beat: Beat) -> None:
        if last[0]:
            if len(intervals) == AKKA_WINDOW:
                sums[0] -= intervals[0]
                sums[1] -= intervals[0] ** 2
            intervals.append(beat - last[0])
            sums[0] += intervals[-1]
            sums[1] += intervals[-1] ** 2
        last[0] = beat

    def verdict(now: float) -> float | None:
        if not intervals:
            return None
        mean = sums[0] / len(intervals)
        deviation = max(sqrt(max(sums[1] / len(intervals) - mean * mean, 0.0)), AKKA_DEVIATION_S)
        return last[0] + mean + AKKA_PAUSE_S + deviations * deviation

    return judged(verdict, heard, heartbeats(link, seed, died, until), died, until)


def _akka_deviations(threshold: float) -> float:
    """How many deviations behind the mean phi reaches the threshold."""
    low, high = -10.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        odds = middle * (1.5976 + 0.070566 * middle * middle)  # of "it came already", as a logarithm
        phi = (odds + log1p(exp(-odds)) if odds > 0 else log1p(exp(odds))) / log(10)
        low, high = (middle, high) if phi < threshold else (low, middle)
    return high


def memberlist(multiplier: float, link: Connection, seed: str, died: float, until: float) -> Judgement:
    """One observer with memberlist's probes: one a second, missed without an answer in it; suspected from then on, dead
    after `multiplier` intervals, unless any answer refutes that. The observer is well, so Lifeguard adds no time."""
    there, back = link.ways(seed, until)
    suspected, dead, alarms, sent = None, False, 0, 0
    answers, misses, now = list[float](), list[float](), random.Random(seed).random()
    while now < until:
        sent += 1
        reached = there.arrival(now)
        returned = None if reached is None or reached >= died else back.arrival(reached)
        if returned is not None:
            heapq.heappush(answers, returned)
        if returned is None or returned > now + MEMBERLIST_TIMEOUT_S:
            misses.append(now + MEMBERLIST_TIMEOUT_S)
        now += MEMBERLIST_PROBE_S
        for at, is_answer in sorted([(each, True) for each in answers if each <= now] + [(m, False) for m in misses]):
            if suspected is not None and not dead and at >= suspected + multiplier * MEMBERLIST_PROBE_S:
                told = suspected + multiplier * MEMBERLIST_PROBE_S
                if told >= died:
                    return Judgement(alarms, told - died, sent)
                dead, alarms = True, alarms + (told >= WARM_UP_S)
            if is_answer:
                suspected, dead = None, False
            elif suspected is None:
                suspected = at
        answers = [each for each in answers if each > now]
        heapq.heapify(answers)
        misses.clear()
    return Judgement(alarms, None, sent)


class Detector(Protocol):
    def __call__(self, link: Connection, seed: str, died: float, until: float, /) -> Judgement: ...


@dataclass(frozen=True)
class Maker:
    """A detector with one parameter; `parameters` ascend."""

    name: str
    parameters: tuple[float, ...]
    detector: Callable[[float], Detector]


@dataclass(frozen=True)
class Outcome:
    """Of one detector on one link. Alarms an hour of one entity; seconds from death to verdict; pings or heartbeats a
    second while it lives."""

    alarms_per_hour: float
    median_s: float
    slowest_s: float
    sent_per_s: float


def measure(detect: Detector, link: Connection, hours: int, deaths: int, seed: int) -> Outcome:
    """`hours` of living entities, an hour each, and `deaths` deaths after five minutes or so."""
    alive = [detect(link, f"{seed} alive {n}", HOUR_S, HOUR_S) for n in range(hours)]
    times = []
    for number in range(deaths):
        died = LIVED_S + DEATHS_OVER_S * (number + random.Random(f"{seed} death {number}").random()) / deaths
        told_s = detect(link, f"{seed} dies {number}", died, died + LONGEST_S).told_s
        times.append(LONGEST_S if told_s is None else told_s)
    alarms, sent = (sum(each) for each in zip(*((one.alarms, one.sent) for one in alive), strict=True))
    return Outcome(alarms / hours, statistics.median(times), max(times), sent / hours / HOUR_S)


def at_most(alarms: Sequence[float], make: Maker, links: Sequence[Connection], hours: int, seed: int) -> float:
    """The smallest parameter with which the detector raises on each link no more false alarms an hour than `alarms`
    says; the largest one, if none does. False alarms fall with the parameter."""
    low, high, found = 0, len(make.parameters) - 1, make.parameters[-1]
    while low <= high:
        middle = (low + high) // 2
        detect = make.detector(make.parameters[middle])
        found_alarms = [measure(detect, link, hours, 1, seed).alarms_per_hour for link in links]
        if all(raised <= most for raised, most in zip(found_alarms, alarms, strict=True)):
            found, high = make.parameters[middle], middle - 1
        else:
            low = middle + 1
    return found


def rows(links: Sequence[Connection], hours: int, deaths: int, seed: int, preset: Preset = LAN) -> Iterator[Row]:
    """Every link: peers with one parameter for all links, as ours has; tuned to each; and ours tuned, too."""
    ours = [measure(partial(pinged, preset), link, hours, deaths, seed) for link in links]
    alarms = [outcome.alarms_per_hour for outcome in ours]
    cautions = Maker("ours", CAUTIONS, lambda caution: partial(pinged, replace(preset, caution=caution, floor_s=0.0)))
    tuned = []
    for link, most in zip(links, alarms, strict=True):
        caution = at_most([most], cautions, [link], hours, seed)
        tuned.append((caution, measure(cautions.detector(caution), link, hours, deaths, seed)))
    for make in MAKERS:
        everywhere = at_most(alarms, make, links, hours, seed)
        for link, our, (caution, our_tuned), most in zip(links, ours, tuned, alarms, strict=True):
            here = at_most([most], make, [link], hours, seed)
            theirs = measure(make.detector(everywhere), link, hours, deaths, seed)
            yield Row(link.name, our, theirs, f"{make.name}, one for all links ({everywhere:g})")
            theirs = measure(make.detector(here), link, hours, deaths, seed)
            yield Row(link.name, our, theirs, f"{make.name}, tuned to it ({here:g})")
            yield Row(link.name, our_tuned, theirs, f"{make.name}, both tuned ({caution:g}; {here:g})")


@dataclass(frozen=True)
class Row:
    link: str
    ours: Outcome
    peer: Outcome
    peer_name: str


THRESHOLDS = (*(x / 4 for x in range(2, 401)), *map(float, range(105, 301, 5)))
CAUTIONS = tuple(x / 20 for x in range(4, 41))
MAKERS = (
    Maker("fixed timeout", tuple(x / 10 for x in range(11, 301)), lambda timeout_s: partial(fixed, timeout_s)),
    Maker("phi-accrual", THRESHOLDS, lambda threshold: partial(accrual, threshold)),
    Maker("Chen", tuple(x / 10 for x in range(1, 301)), lambda alpha_s: partial(chen, alpha_s)),
    Maker("Akka, pause 3 s", THRESHOLDS, lambda threshold: partial(akka, threshold)),
    Maker("memberlist", tuple(x / 2 for x in range(1, 61)), lambda multiplier: partial(memberlist, multiplier)),
)
