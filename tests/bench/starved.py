"""A broker without processor time: whom it takes for dead, and how soon it tells a real death.

It runs 5 of every 300 ms for `STARVED_S`, once it knows its links; answers wait in its sockets meanwhile. Beside it the
same machines in a broker that judges first and reads then, and has no measure of itself. Simulated time, no sockets.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import replace

from bridge.traces.pings import EXPERIENCE, Health, Pulse
from bridge.traces.presets import LAN
from bridge.traces.self_health import SelfHealth
from tests.bench.detection import RUNS_S, SLICE_S
from tests.bench.growth import Row

STARVED_S = 15.0
TURN_S = 0.005
ROUND_TRIP_S = 0.01


class Broker:
    """`reads_first`: as ours does; else as one that looks at its timers first."""

    def __init__(self, entities: int, seed: int, reads_first: bool) -> None:
        rng = random.Random(seed)
        self.ours, self.reads_first = SelfHealth(), reads_first
        preset = LAN if reads_first else replace(LAN, floor_s=0.0)
        self.pulses = [Pulse(preset, rng.random(), rng.random(), self.ours) for _ in range(entities)]
        self.answers: list[tuple[float, int, int, int]] = []
        self.died: dict[int, float] = {}
        self.suspected, self.failed = 0, 0
        self.told_s: list[float] = []

    def turn(self, now: float) -> None:
        if self.reads_first:
            self._read(now)
            due = min(pulse.next_deadline for pulse in self.pulses)
            self.ours.turn(now - due, sum(pulse.is_overdue for pulse in self.pulses), len(self.pulses), now)
        for place, pulse in enumerate(self.pulses):
            if pulse.next_deadline > now:
                continue
            ping, changed = pulse.tick(now)
            if changed is Health.FAILED and place in self.died:
                self.told_s.append(now - self.died[place])
            elif changed is not None and place not in self.died:
                self.suspected += changed is Health.SUSPECTED
                self.failed += changed is Health.FAILED
            if ping is not None and place not in self.died:
                heapq.heappush(self.answers, (now + ROUND_TRIP_S, place, ping.number, ping.sent_ms))
        if not self.reads_first:
            self._read(now)

    def _read(self, now: float) -> None:
        while self.answers and self.answers[0][0] <= now:
            _, place, number, sent_ms = heapq.heappop(self.answers)
            if place not in self.died:
                self.pulses[place].take_echo(number, sent_ms, now)


def run(entities: int, seed: int, reads_first: bool, deaths: int) -> Broker:
    """Until its links are known, then without processor time, then well again for ten seconds."""
    broker, now = Broker(entities, seed, reads_first), 0.0
    while now < EXPERIENCE + 30:
        now += 10 * TURN_S
        broker.turn(now)
    broker.suspected = broker.failed = 0
    until = now + STARVED_S
    broker.died = dict.fromkeys(range(deaths), now + STARVED_S / 3)
    living, broker.died = broker.died, {}
    while now < until:
        if now >= until - STARVED_S * 2 / 3:
            broker.died = living
        for _ in range(int(RUNS_S / TURN_S)):
            broker.turn(now)
        now += SLICE_S
    while now < until + 20:
        now += TURN_S
        broker.turn(now)
    return broker


def rows(entities: int, seed: int) -> Iterator[Row]:
    deaths = max(1, entities // 20)
    ours, other = (run(entities, seed, reads_first, deaths) for reads_first in (True, False))
    what = f"broker runs {RUNS_S * 1000:g} of {SLICE_S * 1000:g} ms for {STARVED_S:g} s, {entities} entities"
    peer = "judges first, reads then"
    yield Row(f"{what}: FAILED of living", ours.failed, other.failed, peer, "")
    yield Row(f"{what}: suspicions of living", ours.suspected, other.suspected, peer, "")
    yield Row(f"{what}: slowest of {deaths} deaths", _slowest(ours, deaths), _slowest(other, deaths), peer, "s")


def _slowest(broker: Broker, deaths: int) -> float:
    return max(broker.told_s) if len(broker.told_s) >= deaths else float("inf")
