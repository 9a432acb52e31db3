"""Room for waiting publications at a reader: number of publications per publisher, and bytes in total.

A publisher gets at most a quarter of the bytes, and only its fair part once the total is reached: a publisher filling
others' room cannot take all of it. `collector` decides which publications wait, and for what.
"""

from __future__ import annotations

HELD_MAX = 4096  # publications of one publisher
HELD_BYTES_MAX = 256 << 20  # of all; those below their fair part may go beyond it, at most to twice as much
PARTS = 4


class HeldRoom:
    """The room taken by each publisher, and the total in bytes."""

    def __init__(self) -> None:
        self._held: dict[bytes, tuple[int, int]] = {}  # by publisher: how many, and their bytes
        self._bytes = 0

    def has_for(self, publisher: bytes, size: int) -> bool:
        """Returns True if another publication of that many bytes may wait. Each publisher may always have a single
        waiting.
        """
        count, before = self._held.get(publisher, (0, 0))
        if not count:
            return True
        parts = PARTS if self._bytes <= HELD_BYTES_MAX else max(PARTS, len(self._held))
        return count < HELD_MAX and before + size <= HELD_BYTES_MAX // parts

    def add(self, publisher: bytes, size: int) -> None:
        """Adds a waiting publication."""
        count, before = self._held.get(publisher, (0, 0))
        self._held[publisher] = count + 1, before + size
        self._bytes += size

    def remove(self, publisher: bytes, size: int) -> None:
        """Removes a publication that was added with that many bytes."""
        count, before = self._held.pop(publisher)
        if count > 1:
            self._held[publisher] = count - 1, before - size
        self._bytes -= size
