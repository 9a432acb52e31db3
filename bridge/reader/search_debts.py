"""Debts of publishers for searches in vain: only a publisher that commits to garbage waits.

A choice of places that fits nothing is work caused by the key's publisher, or by replicas lying about its shares. The
publisher owes `STEP_S` for each choice, and its next search waits while the debt exceeds `BURST_S`. A key that nothing
can fit any more costs twice as much each time, until one of the publisher's keys opens. A debt delays, and drops
nothing.
"""

from __future__ import annotations

STEP_S = 50e-6
"""Seconds owed for a choice; a choice takes about 20 us, so that one publisher gets less than half of a core."""
BURST_S = 0.02
"""Seconds owed before a search waits: below that a timer costs more than the search."""
PAUSE_MAX_S = 60.0
DOUBLINGS_MAX = 24  # of what a publisher owes for a choice in vain; more would overflow no float and wait no longer
KNOWN_MAX = 1024
"""Publishers held before publishers without debt are forgotten; a longer list consists of members."""


class SearchDebts:
    """Debts by publisher id. A debt is stored as the time at which waiting has paid it."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}
        self._refuted: dict[bytes, int] = {}

    def free_at(self, publisher: bytes, now: float) -> float:
        """Returns the time at which the publisher's keys may be searched again: `now`, or later."""
        return max(now, self._until.get(publisher, now) - BURST_S)

    def in_vain(self, publisher: bytes, choices: int, now: float) -> None:
        """Charges that many tried choices for a key that did not open."""
        self._owe(publisher, choices * STEP_S, now)

    def refuted(self, publisher: bytes, choices: int, now: float) -> None:
        """Charges a key that nothing can open any more; its whole search tried `choices`."""
        doublings = self._refuted.get(publisher, 0)
        self._refuted[publisher] = min(doublings + 1, DOUBLINGS_MAX)
        self._owe(publisher, max(choices, 1) * STEP_S * 2**doublings, now)

    def opened(self, publisher: bytes) -> None:
        """Resets the doubling after a key of the publisher opened."""
        self._refuted.pop(publisher, None)

    def _owe(self, publisher: bytes, more_s: float, now: float) -> None:
        self._until[publisher] = min(max(now, self._until.get(publisher, now)) + more_s, now + PAUSE_MAX_S)
        if len(self._until) > KNOWN_MAX:
            self._until = {one: until for one, until in self._until.items() if until > now}
