"""Two clocks in one: whatever measures runs on a steady clock, and what is told to others is the time on the wall.

The clock on the wall is set by people and by programs, and steps. So a machine's `now` is steady, in seconds from
anywhere, and what it signs, compares with other people's times or shows is `ms(now)`. The driver says how far apart
they are, before each event. Not here: any clock.
"""

from __future__ import annotations


class Wall:
    """Shared by the machines of one process."""

    __slots__ = ("offset_s",)

    def __init__(self, offset_s: float = 0.0) -> None:
        self.offset_s = offset_s
        """Seconds since the UNIX epoch, less the steady clock."""

    def ms(self, now: float) -> int:
        """UNIX time in milliseconds at a moment of the steady clock."""
        return int((now + self.offset_s) * 1000)

    def at(self, time_ms: int) -> float:
        """The moment of the steady clock at which the wall shows `time_ms`, as the two stand now."""
        return time_ms / 1000 - self.offset_s
