"""Clock of the broker answering a member's CONNECT, in a user property of CONNACK: compared at each connection.

The difference includes the travel time of a packet, which is negligible. No I/O; times are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable

PROPERTY = "vmq-clock"
DIGITS_MAX = 16  # of the time that a peer states, in ms


def stamp(now: float) -> tuple[str, str]:
    """Returns the user property; `now`: UNIX time in seconds."""
    return PROPERTY, str(int(now * 1000))


def ahead_s(properties: Iterable[tuple[str, str]], now: float) -> float | None:
    """Returns the seconds by which the other clock is ahead of this one; None if the property is absent or invalid."""
    for name, value in properties:
        if name == PROPERTY and value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX:
            return int(value) / 1000 - now
    return None
