"""Bounds of QoS 0 entries that are in memory only: without an uplink the oldest goes first.

`publisher` sends the entries, `intake` holds QoS 0 publications behind a commit.
"""

from __future__ import annotations

QOS0_ENTRIES_MAX = 10_000  # they are in memory only; without an uplink the oldest go first ...
QOS0_BYTES_MAX = 64 << 20  # ... as they do when they are larger together


class Fleeting:
    """Numbers of QoS 0 entries with their bytes; oldest first."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, sequence: int, size: int) -> None:
        self._sizes[sequence] = size
        self._bytes += size

    def remove(self, sequence: int) -> None:
        """Removes an entry, if it is here."""
        self._bytes -= self._sizes.pop(sequence, 0)

    def excess(self) -> list[int]:
        """Removes the oldest entries beyond the bounds, and returns their numbers."""
        gone: list[int] = []
        while len(self._sizes) > QOS0_ENTRIES_MAX or self._bytes > QOS0_BYTES_MAX:
            gone.append(next(iter(self._sizes)))
            self.remove(gone[-1])
        return gone
