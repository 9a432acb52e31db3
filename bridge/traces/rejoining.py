"""How long a broker that began anew waits for those who were registered before, and are not back.

`REJOIN_S` is enough for a hundred. Thousands come back as fast as the broker takes them up, so whoever is late may be
late by our fault. So beyond that time they are waited for as long as they come: while in the last `COMES_S` to twice
that one of those who are missing came, and a part `COMES_PART` of them at least; and while the broker does badly
(`self_health`). Each counts once, so that nobody holds up the news of a death by registering again. `REJOIN_MAX_S` is
the end of it in any case: a token has five minutes left at least when a broker dies, without which it may not tell.

Times and events in, a time out. Not here: who they are, and what is told (`tracer`).
"""

from __future__ import annotations

from bridge.traces.self_health import SICK

REJOIN_S = 60.0  # how long an entity of before a restart of ours may take to come back, at least ...
REJOIN_MAX_S = 240.0  # ... and at most
COMES_S = 10.0
COMES_PART = 0.01


class Rejoining:
    """Those who are missing, by number, and how fast they come."""

    __slots__ = ("_before", "_began", "_came", "_missing", "_since")

    def __init__(self) -> None:
        self._missing = 0
        self._began = self._since = float("-inf")
        self._came = self._before = 0  # since `_since`, and in the `COMES_S` before

    @property
    def missing(self) -> int:
        """How many are."""
        return self._missing

    def waits(self, now: float) -> float:
        """One more is missing; until when nothing is said of it in any case."""
        if not self._missing:
            self._began = self._since = now
        self._missing += 1
        return self._began + REJOIN_S

    def gone(self) -> None:
        """One is missing no longer, whatever became of it."""
        self._missing -= 1

    def came(self, now: float) -> None:
        """One that was missing is back."""
        self._turn(now)
        self._came += 1

    def until(self, now: float, score: float) -> float:
        """When it is over for those who are still missing, or is to be asked again; not later than `now`: it is over.
        `score`: how badly we do."""
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
