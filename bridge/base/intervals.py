"""A set of numbers as disjoint closed intervals, ascending, that never touch each other.

Not here: the meaning of the numbers (`reader.streams`, `replica.filtering`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

_PAIR = struct.Struct(">QQ")


class Intervals:
    """A set of numbers as closed intervals. `len` is the number of intervals, not of numbers."""

    __slots__ = ("_highs", "lows")

    def __init__(self) -> None:
        self.lows: list[int] = []
        """The first number of each interval, ascending; nobody else changes the list."""
        self._highs: list[int] = []

    def __len__(self) -> int:
        return len(self.lows)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.lows, self._highs, strict=True)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.lows, number) - 1
        return at >= 0 and number <= self._highs[at]

    def within(self, low: int, high: int) -> list[tuple[int, int]]:
        """Returns the parts of [low, high] in the set, ascending."""
        at = bisect_left(self._highs, low)
        found = []
        while at < len(self.lows) and self.lows[at] <= high:
            found.append((max(low, self.lows[at]), min(high, self._highs[at])))
            at += 1
        return found

    def without(self, low: int, high: int) -> list[tuple[int, int]]:
        """Returns the parts of [low, high] outside the set, ascending."""
        left, at = [], low
        for start, end in self.within(low, high):
            if start > at:
                left.append((at, start - 1))
            at = end + 1
        if at <= high:
            left.append((at, high))
        return left

    def add(self, low: int, high: int) -> None:
        """Adds [low, high]; nothing if low > high."""
        if low > high:
            return
        start, end = bisect_left(self._highs, low - 1), bisect_right(self.lows, high + 1)
        if start < end:
            low, high = min(low, self.lows[start]), max(high, self._highs[end - 1])
        self.lows[start:end], self._highs[start:end] = [low], [high]

    def remove(self, low: int, high: int) -> None:
        """Removes [low, high]."""
        start, end = bisect_left(self._highs, low), bisect_right(self.lows, high)
        if start >= end or low > high:
            return
        rest = [(self.lows[start], low - 1), (high + 1, self._highs[end - 1])]
        kept = [pair for pair in rest if pair[0] <= pair[1]]
        self.lows[start:end], self._highs[start:end] = [pair[0] for pair in kept], [pair[1] for pair in kept]

    def remove_up_to(self, high: int) -> None:
        """Removes all numbers up to `high`."""
        if self.lows and self.lows[0] <= high:
            self.remove(self.lows[0], high)

    def drop_lowest(self) -> None:
        """Removes the lowest interval; there must be one."""
        del self.lows[0], self._highs[0]

    def encode(self) -> bytes:
        """Returns each interval as two numbers of 8 bytes."""
        return b"".join(map(_PAIR.pack, self.lows, self._highs))

    @classmethod
    def decode(cls, data: bytes) -> Intervals:
        """Decodes the bytes of `encode`. Raises ValueError for other bytes."""
        found = cls()
        if len(data) % _PAIR.size:
            raise ValueError("intervals are cut short")
        for low, high in _PAIR.iter_unpack(data):
            if low > high or (found._highs and low <= found._highs[-1] + 1):
                raise ValueError("intervals are not ascending and apart")
            found.lows.append(low)
            found._highs.append(high)
        return found
