"""What publishers owe for searches in vain: who commits to garbage waits, nobody else does.

A choice of places that fits nothing is work that the key's publisher caused, or replicas that lie about its shares: it
owes `STEP_S` for each, and its next search waits while it owes more than `BURST_S`. A key that nothing can fit any
more costs twice as much each time, until one of its keys opens. A debt delays, and drops nothing.
"""

from __future__ import annotations

STEP_S = 50e-6
"""Owed for a choice; it takes about 20 us, so that one publisher gets less than half of a core."""
BURST_S = 0.02
"""Owed before a search waits: below that a timer costs more than the search."""
PAUSE_MAX_S = 60.0
DOUBLINGS_MAX = 24
KNOWN_MAX = 1024
"""Publishers before those who owe nothing are forgotten; more than that are members."""


class SearchDebts:
    """By publisher id. A debt is the time until which it is paid by waiting."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}
        self._refuted: dict[bytes, int] = {}

    def free_at(self, publisher: bytes, now: float) -> float:
        """When its keys may be searched for again: `now`, or later."""
        return max(now, self._until.get(publisher, now) - BURST_S)

    def in_vain(self, publisher: bytes, choices: int, now: float) -> None:
        """So many choices were worked out and the key did not open."""
        self._owe(publisher, choices * STEP_S, now)

    def refuted(self, publisher: bytes, choices: int, now: float) -> None:
        """Nothing can open a key any more; all its search worked out `choices`."""
        doublings = self._refuted.get(publisher, 0)
        self._refuted[publisher] = min(doublings + 1, DOUBLINGS_MAX)
        self._owe(publisher, max(choices, 1) * STEP_S * 2**doublings, now)

    def opened(self, publisher: bytes) -> None:
        """A key of it opened: the next that does not is its first."""
        self._refuted.pop(publisher, None)

    def _owe(self, publisher: bytes, more_s: float, now: float) -> None:
        self._until[publisher] = min(max(now, self._until.get(publisher, now)) + more_s, now + PAUSE_MAX_S)
        if len(self._until) > KNOWN_MAX:
            self._until = {one: until for one, until in self._until.items() if until > now}
