"""Two clocks in one: measurements use a steady clock, and times told to others are the time on the wall.

People and programs set the clock on the wall, so it steps. So a machine's `now` is steady, in seconds from anywhere;
times the machine signs, compares with other parties' times or shows are `ms(now)`. The driver sets the difference of
the clocks before each event. Not here: any clock.
"""

from __future__ import annotations


class Wall:
    """A difference of clocks the machines of a process share."""

    __slots__ = ("offset_s",)

    def __init__(self, offset_s: float = 0.0) -> None:
        self.offset_s = offset_s
        """Seconds since the UNIX epoch, less the steady clock."""

    def ms(self, now: float) -> int:
        """Returns UNIX time in milliseconds at a moment of the steady clock."""
        return int((now + self.offset_s) * 1000)

    def moment_of(self, time_ms: int) -> float:
        """Returns the moment of the steady clock at which the wall shows `time_ms`, by the present difference of the
        clocks.
        """
        return time_ms / 1000 - self.offset_s
