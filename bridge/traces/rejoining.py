"""The wait of a restarted broker for entities that were registered before and are not back.

`REJOIN_S` is enough for a hundred entities. Thousands come back as fast as the broker can register them, so a late
entity may be late by our fault. So after `REJOIN_S` the wait goes on while entities come: while in the last `COMES_S`
to twice `COMES_S` at least one of the missing came, and at least a part `COMES_PART` of them; and while the broker
does badly (`self_health`). Each entity counts once, so that none delays the news of a death by registering again.
`REJOIN_MAX_S` ends the wait in any case: when a broker dies its tokens have at least five minutes left, and without
tokens it may tell nothing.

Times and events in, a time out. Not here: the entities and their traces (`tracer`).
"""

from __future__ import annotations

from bridge.traces.self_health import SICK

REJOIN_S = 60.0  # the least wait for an entity registered before our restart ...
REJOIN_MAX_S = 240.0  # ... and at most
COMES_S = 10.0
COMES_PART = 0.01


class Rejoining:
    """The number of missing entities, and the pace at which they come back."""

    __slots__ = ("_before", "_began", "_came", "_missing", "_since")

    def __init__(self) -> None:
        self._missing = 0
        self._began = self._since = float("-inf")
        self._came = self._before = 0  # since `_since`, and in the `COMES_S` before

    @property
    def missing(self) -> int:
        """The number of missing entities."""
        return self._missing

    def waits(self, now: float) -> float:
        """Counts another missing entity. Returns the time before which nothing is said of it in any case."""
        if not self._missing:
            self._began = self._since = now
        self._missing += 1
        return self._began + REJOIN_S

    def gone(self) -> None:
        """Counts a single missing entity less, whatever became of it."""
        self._missing -= 1

    def count_return(self, now: float) -> None:
        """Counts a missing entity that is back."""
        self._turn(now)
        self._came += 1

    def until(self, now: float, score: float) -> float:
        """Returns the time at which the wait for the missing entities ends or is to be checked again; at most `now` if
        it is over. `score`: how badly our broker does.
        """
        least, most = self._began + REJOIN_S, self._began + REJOIN_MAX_S
        if now < least:
            return least
        self._turn(now)
        comes = self._came + self._before >= max(1.0, COMES_PART * self._missing)
        return min(now + COMES_S / 2, most) if comes or score >= SICK else now

    def _turn(self, now: float) -> None:
        passed = (now - self._since) // COMES_S
        if passed >= 1:
            self._before = self._came if passed == 1 else 0
            self._came = 0
            self._since += passed * COMES_S
