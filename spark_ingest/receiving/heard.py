"""What publications say of our own clock, where no replica's clock vouches for it.

By a clock that is minutes off everything that is published now looks old (or of the future), and as long as nobody is
known that is what a replay looks like: it would be set apart as `stale`, and acknowledged. So while most of the
publishers that are heard are like that, and not one of them fresh, what they send is held and not acknowledged. A
backlog looks old too, but is not taken for a clock: it brings the publications of hours within seconds.

Pure. Not here: which replicas' clocks agree with ours (`receiver.clock`), what is done with publications that are held
(`publications`).
"""

from __future__ import annotations

from dataclasses import dataclass

BACKLOG_S = 60.0
"""Publications of one publisher that lie further apart than twice the time in which they came, and this, had waited."""


@dataclass(slots=True)
class _Dated:
    """Publications of one publisher that are too old or too young. Times of sealing, and when they came."""

    first_ms: int
    last_ms: int
    came: float
    came_last: float

    @property
    def had_waited(self) -> bool:
        return (self.last_ms - self.first_ms) / 1000 > 2 * (self.came_last - self.came) + BACKLOG_S


class HeardTimes:
    """Of one session. Feed it verified publications of publishers that are members: it holds one entry for each."""

    def __init__(self) -> None:
        self.vouched = True
        """Most replicas have a clock like ours: then publishers are not asked."""
        self.fresh: set[bytes] = set()
        """Publishers of something that was sealed just now."""
        self._dated: dict[bytes, _Dated] = {}

    def dated(self, publisher: bytes, time_ms: int, now: float) -> None:
        """Something of a publisher that nobody knows came, and is not fresh."""
        known = self._dated.get(publisher)
        if known is None:
            self._dated[publisher] = _Dated(time_ms, time_ms, now, now)
            return
        known.first_ms, known.last_ms = min(known.first_ms, time_ms), max(known.last_ms, time_ms)
        known.came_last = now

    @property
    def doubt(self) -> str | None:
        """Why our clock may be off, None when there is no reason to think so."""
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
