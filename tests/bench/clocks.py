"""The clock on the wall is set by an hour: who is taken for dead, and who that died is told so.

Half of the entities die a second before the clock is set, the others answer as ever. Our pings are judged by
`gateway.base.Clock`, as in a broker, and beside them heartbeats by a fixed timeout of 5 s that reads the wall.
Simulated time, no sockets.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.traces.pings import Health, Pulse
from bridge.traces.presets import LAN
from bridge.traces.self_health import SelfHealth
from gateway.base import Clock
from tests.bench.growth import Row

ENTITIES, DEATHS = 100, 50
STEPS_S = (-3_600.0, 3_600.0)
DIED_AT_S, SET_AT_S, UNTIL_S = 60.0, 61.0, 181.0
TURN_S, HEARTBEAT_S, TIMEOUT_S = 0.05, 1.0, 5.0


class Times:
    """What both clocks of a machine show."""

    def __init__(self, step_s: float) -> None:
        self.now, self._step_s = 0.0, step_s
        self.clock = Clock(lambda: self.now, lambda: self.now + (self._step_s if self.now >= SET_AT_S else 0.0))

    def is_dead(self, place: int) -> bool:
        return place < DEATHS and self.now >= DIED_AT_S


def pinged(times: Times) -> tuple[int, int]:
    """Living ones told FAILED, and deaths told."""
    ours = SelfHealth()
    pulses = [Pulse(LAN, times.clock(), place / ENTITIES, ours) for place in range(ENTITIES)]
    wrong = told = 0
    while times.now < UNTIL_S:
        times.now += TURN_S
        now = times.clock()
        for place, pulse in enumerate(pulses):
            if pulse.next_deadline > now:
                continue
            ping, changed = pulse.tick(now)
            is_dead = times.is_dead(place)
            if ping is not None and not is_dead:
                pulse.take_echo(ping.number, ping.sent_ms, now)
            wrong += changed is Health.FAILED and not is_dead
            told += changed is Health.FAILED and is_dead
    return wrong, told


def fixed(times: Times) -> tuple[int, int]:
    """The same by a fixed timeout and the time on the wall."""
    heard_ms = [0] * ENTITIES
    held_dead: set[int] = set()
    wrong = told = 0
    while times.now < UNTIL_S:
        times.now += TURN_S
        wall_ms = times.clock.wall.ms(times.clock())
        for place in range(ENTITIES):
            is_dead = times.is_dead(place)
            if wall_ms - heard_ms[place] > 1_000 * TIMEOUT_S and place not in held_dead:
                held_dead.add(place)
                wrong, told = wrong + (not is_dead), told + is_dead
            if not is_dead and (times.now + place / ENTITIES) % HEARTBEAT_S < TURN_S:
                heard_ms[place] = wall_ms
                held_dead.discard(place)
    return wrong, told


def rows() -> Iterator[Row]:
    peer = f"fixed {TIMEOUT_S:g} s on the wall clock"
    for step_s in STEPS_S:
        what = f"wall clock set {'back' if step_s < 0 else 'ahead'} by an hour, {ENTITIES} entities"
        ours, other = pinged(Times(step_s)), fixed(Times(step_s))
        yield Row(f"{what}: living told FAILED", ours[0], other[0], peer, "")
        yield Row(f"{what}: of {DEATHS} deaths told in two minutes", ours[1], other[1], peer, "")
