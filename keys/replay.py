"""The window of sequences that were seen, for duplicates and replays of one publisher.

A bitmap below the highest sequence; whatever is older than the window counts as seen, so that nothing can
be replayed by waiting. Not here: holes, order and repair, which are kept for each topic
(`bridge.collecting`).
"""

from __future__ import annotations

from keys.errors import OurFault

WINDOW_SIZE = 65_536


class SequenceWindow:
    """Remembers which of the last `size` sequences came. Feed it verified sequences only: a forged high one
    would make everything below it look old."""

    __slots__ = ("_bits", "_highest", "_mask", "_size")

    def __init__(self, size: int = WINDOW_SIZE) -> None:
        if size < 1:
            raise OurFault("a window holds at least one sequence")
        self._size = size
        self._mask = (1 << size) - 1
        self._highest = -1
        self._bits = 0  # bit i is set if sequence highest - i was seen

    @property
    def highest(self) -> int:
        """The highest sequence seen, -1 for none."""
        return self._highest

    def seen(self, sequence: int) -> bool:
        """Mark `sequence`; True if it came before or is older than the window."""
        ahead = sequence - self._highest
        if ahead > 0:
            self._bits = 1 if ahead >= self._size else (self._bits << ahead | 1) & self._mask
            self._highest = sequence
            return False
        if -ahead >= self._size:
            return True
        bit = 1 << -ahead
        if self._bits & bit:
            return True
        self._bits |= bit
        return False
