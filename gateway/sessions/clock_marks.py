"""Clock marks: the clock of a broker at its last write, so that stored times survive a clock that was wrong.

A broker counts time from its start, whatever the clock of the machine is set to, and stores instants of this count.
A mark holds such an instant and the machine's clock at the same moment. The next start compares: a clock that was set
during the former run moves all stored times by the same step, and a clock that was wrong to the end counts as no time
at all. Not here: the rows (`database`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

EARLIEST_S = 1_793_491_200.0
"""2026-11-01 in seconds since the UNIX epoch. This version was made later: an earlier clock is wrong."""
STEP_S = 1.0
"""A smaller difference is the machine's clock being slewed."""


class ClockMark(NamedTuple):
    """Instant of a broker and the machine's clock at the same moment, in seconds since the UNIX epoch."""

    now: float
    wall: float


class ClockMarks:
    """Maker of marks of a run. `now`: the broker's instant; `difference`: machine's clock less a steady clock."""

    def __init__(
        self, now: Callable[[], float], difference: Callable[[], float] = lambda: time.time() - time.monotonic()
    ) -> None:
        self._now, self._difference = now, difference
        self._at_start = difference()

    def __call__(self) -> ClockMark:
        now = self._now()
        return ClockMark(now, now + self._difference() - self._at_start)


def shift_s(mark: ClockMark, now: float) -> float:
    """Returns the seconds by which times stored until `mark` move for a start at `now`; 0 for right clocks."""
    if mark.wall < EARLIEST_S or mark.wall > now + STEP_S:
        return now - mark.now
    shift = mark.wall - mark.now
    return shift if abs(shift) > STEP_S else 0.0
