"""How long a death takes to be told, as an oracle for tests of everything above one pulse."""

from __future__ import annotations

from bridge.traces.pings import Health, Pulse
from bridge.traces.presets import Preset


def detection_s(preset: Preset, round_trip_s: float, answers: int = 100) -> float:
    """The longest time from death to FAILED where every round trip took `round_trip_s`: just after an answer."""
    pulse = Pulse(preset, 0.0)
    now = died = 0.0
    while pulse.health is not Health.FAILED:
        now = pulse.next_deadline
        ping, _ = pulse.tick(now)
        if ping is not None and ping.number <= answers:
            pulse.take_echo(ping.number, ping.sent_ms, now + round_trip_s)
            died = now + round_trip_s
    return now - died
