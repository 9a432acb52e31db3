"""Entries that cannot be sealed now, for want of a key or of the right to publish.

A waiting entry delays no other one. Each is checked again at a review. An entry that waited a day for the right is
given up. `sealing` and `placing` give the reasons for waiting, `cutting` has the row on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bridge.contract import Count, Effect, count_of
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry, Sealer


class Hindered:
    """The waiting entries of one gateway. `entries` holds all entries in memory; `most_s` is the longest wait for the
    right.
    """

    def __init__(self, entries: Mapping[int, Entry], residents: Residents, most_s: float) -> None:
        self._entries, self._residents, self._most_s = entries, residents, most_s
        self._waits: dict[int, bool] = {}  # -> whether for want of the right
        self.give_up_at = float("inf")
        """The time at which the first entry without the right is given up."""

    def __iter__(self) -> Iterator[int]:
        return iter(self._waits)

    def forget(self, sequence: int) -> None:
        """Removes an entry, if it waits."""
        self._waits.pop(sequence, None)

    def set_aside(self, sequences: Sequence[int], sealer: Sealer, now: float) -> tuple[list[int], list[Effect]]:
        """Returns entries that can be sealed now; the others wait for a review, counted once."""
        ready, effects = [], list[Effect]()
        for sequence in sequences:
            entry = self._entries[sequence]
            why = sealer.hindrance(entry, now)
            if why is None:
                self._waits.pop(sequence, None)
                self._residents.move(entry, Standing.FRESH)
                ready.append(sequence)
                continue
            unauthorised = why == "not_authorised"
            if self._waits.get(sequence) is not unauthorised:
                effects.append(Count(why, count_of(entry.publication)))
            self._waits[sequence] = unauthorised
            self._residents.move(entry, Standing.WAITING)
            if unauthorised:
                self.give_up_at = min(self.give_up_at, entry.born + self._most_s)
        return ready, effects

    def given_up(self, now: float) -> tuple[list[int], list[Effect]]:
        """Returns entries that waited too long for the right to publish, and counts their publications."""
        old = [s for s, unauthorised in self._waits.items() if unauthorised]
        gone = [s for s in old if now - self._entries[s].born >= self._most_s]
        rest = [self._entries[s].born + self._most_s for s in old if now - self._entries[s].born < self._most_s]
        self.give_up_at = min(rest, default=float("inf"))
        lost = sum(count_of(self._entries[s].publication) for s in gone)
        return gone, [Count("not_authorised_dropped", lost)] if lost else []
