"""What is due when, for tens of thousands of names whose times move on all the while.

One heap of so many would be walked from top to bottom for each of them. Here only what is due soon lies in a heap, and
the rest by the slot of time in which it is due, in no order until that comes up. A name may have several entries:
whoever takes them knows which of them counts. No bound: whoever puts them in begins anew when there are too many.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

SLOTS_PER_S = 20

Entry: TypeAlias = tuple[float, bytes]


class Agenda:
    """Entries of a time in seconds and a name, earliest first."""

    def __init__(self) -> None:
        self._near: list[Entry] = []  # a heap
        self._near_until = float("-inf")
        self._later: dict[int, list[Entry]] = {}  # by slot
        self._slots: list[int] = []  # a heap of the keys of `_later`
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, at: float, name: bytes) -> None:
        self._count += 1
        if at < self._near_until:
            heapq.heappush(self._near, (at, name))
            return
        slot = int(at * SLOTS_PER_S)
        entries = self._later.get(slot)
        if entries is None:
            entries = self._later[slot] = []
            heapq.heappush(self._slots, slot)
        entries.append((at, name))

    def first(self) -> Entry | None:
        """The earliest entry, which stays."""
        if not self._near:
            if not self._slots:
                return None
            slot = heapq.heappop(self._slots)
            self._near = self._later.pop(slot)
            self._near_until = (slot + 1) / SLOTS_PER_S
            heapq.heapify(self._near)
        return self._near[0]

    def take(self) -> Entry:
        """The entry that `first` shows, which is there."""
        self._count -= 1
        return heapq.heappop(self._near)
