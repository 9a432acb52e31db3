"""Room for what waits for its turn at a reader: how many publications of one publisher, and how many bytes in all.

One publisher has a quarter of the bytes at most, and its fair part once all of them are held: who keeps others' room
full cannot have it all. Not here: what waits, and for what (`collector`).
"""

from __future__ import annotations

HELD_MAX = 4096  # publications of one publisher
HELD_BYTES_MAX = 256 << 20  # of all; those below their fair part may go beyond it, at most to twice as much
PARTS = 4


class HeldRoom:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[bytes, tuple[int, int]] = {}  # by publisher: how many, and their bytes
        self._bytes = 0

    def has_for(self, publisher: bytes, size: int) -> bool:
        """Whether one more with so many bytes may wait. One of each publisher always may."""
        count, before = self._held.get(publisher, (0, 0))
        if not count:
            return True
        parts = PARTS if self._bytes <= HELD_BYTES_MAX else max(PARTS, len(self._held))
        return count < HELD_MAX and before + size <= HELD_BYTES_MAX // parts

    def add(self, publisher: bytes, size: int) -> None:
        """One more waits."""
        count, before = self._held.get(publisher, (0, 0))
        self._held[publisher] = count + 1, before + size
        self._bytes += size

    def remove(self, publisher: bytes, size: int) -> None:
        """One that was added, with so many bytes, waits no more."""
        count, before = self._held.pop(publisher)
        if count > 1:
            self._held[publisher] = count - 1, before - size
        self._bytes -= size
