"""The health of a broker that judges others: a broker that is late for its own turns suspects itself first (Lifeguard).

A broker without processor time reads answers late and sends pings late, so all others look slow. Therefore a broker
measures its own health. A broker in bad health waits longer before a verdict, asks less, and says so in its signed
traces. Two signs count:

    lateness   the part of the last `WINDOW_S` seconds by which the broker's turns were late
    many       more than `MANY` of all entities, and `MANY_LEAST` at least, are overdue together: the broker is the
               likelier cause

`score` is 0 for a broker in good health, 1 for a broker that hardly runs. Source: A. Dadgar, J. Phillips, J. Currey,
Lifeguard: local health awareness for more accurate failure detection (2018). Not here: the verdicts on others.
"""

from __future__ import annotations

WINDOW_S = 3.0
USUAL_S = 0.02  # a turn with no larger delay is in time
STRETCH = 1.0  # at a score of 1 every wait is longer by this multiple of itself
MANY, MANY_LEAST = 0.5, 8
MANY_SCORE = 0.5
SICK = 0.25  # from this score on, trackers with several witnesses ignore our verdicts


class SelfHealth:
    """The health of a process. The caller calls `turn` at each turn, before any verdict."""

    __slots__ = ("_late", "_turned_at", "others", "score", "stretch")

    def __init__(self) -> None:
        self.score = 0.0
        self.others = 0
        """The number of other witnesses through which a silent entity may be asked; none fails unasked there."""
        self.stretch = 1.0
        """The factor for every wait."""
        self._late = 0.0
        self._turned_at: float | None = None

    def turn(self, late_s: float, overdue: int, of: int, now: float) -> None:
        """Begins a turn, `late_s` after its time; `overdue` of `of` entities owe an answer."""
        if self._turned_at is not None and now > self._turned_at:
            passed_s = now - self._turned_at
            weight = min(passed_s / WINDOW_S, 1.0)
            late = min(max(late_s - USUAL_S, 0.0) / passed_s, 1.0)
            self._late += (late - self._late) * weight
        self._turned_at = now
        many = overdue >= MANY_LEAST and overdue > MANY * of
        self.score = max(self._late if self._late > 0.01 else 0.0, MANY_SCORE if many else 0.0)
        self.stretch = 1.0 + STRETCH * self.score
