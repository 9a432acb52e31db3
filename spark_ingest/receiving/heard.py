"""Evidence of publications about our own clock, where no replica's clock vouches for it.

By a clock that is minutes off, every fresh publication looks old (or of the future). A replay looks like that too, as
long as no publisher is known: it would be set apart as `stale`, and acknowledged. So while most of the
publishers look like that, and not one of them fresh, their publications are held and not acknowledged. A
backlog looks old too, but is not taken for a wrong clock: it brings the publications of hours within seconds.

Pure. Not here: which replicas' clocks agree with ours (`receiver.clock`), the handling of held publications
(`publications`).
"""

from __future__ import annotations

from dataclasses import dataclass

BACKLOG_S = 60.0
"""A publisher's publications whose times lie further apart than this and twice the time of their arrival had
waited.
"""


@dataclass(slots=True)
class _Dated:
    """Publications of a publisher that are too old or too young: their times of sealing and of arrival."""

    first_ms: int
    last_ms: int
    came: float
    came_last: float

    @property
    def had_waited(self) -> bool:
        return (self.last_ms - self.first_ms) / 1000 > 2 * (self.came_last - self.came) + BACKLOG_S


class HeardTimes:
    """The evidence of a session. To be fed verified publications of members: it holds a single entry for each
    publisher.
    """

    def __init__(self) -> None:
        self.vouched = True
        """Most replicas have a clock like ours: then publishers are not asked."""
        self.fresh: set[bytes] = set()
        """Publishers of something that was sealed just now."""
        self._dated: dict[bytes, _Dated] = {}

    def dated(self, publisher: bytes, time_ms: int, now: float) -> None:
        """Notes a publication that is not fresh, of a publisher that is not known yet."""
        known = self._dated.get(publisher)
        if known is None:
            self._dated[publisher] = _Dated(time_ms, time_ms, now, now)
            return
        known.first_ms, known.last_ms = min(known.first_ms, time_ms), max(known.last_ms, time_ms)
        known.came_last = now

    @property
    def doubt(self) -> str | None:
        """Returns the reason for which our clock may be off, None without one."""
        if self.vouched:
            return None
        off = [each for name, each in self._dated.items() if name not in self.fresh and not each.had_waited]
        heard = len(self.fresh | self._dated.keys())
        if 2 * len(off) <= heard:
            return None
        ages = sorted((each.came_last - each.last_ms / 1000 for each in off), key=abs)
        way = "older" if ages[0] > 0 else "younger"
        return (
            f"what {len(off)} of {heard} gateways publish is {abs(ages[0]):.0f} s {way} than this machine's clock "
            "allows, and nothing of them is fresh: it is not acknowledged; set the clock (if it is right, this ends "
            "when most of them publish)"
        )
