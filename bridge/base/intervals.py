"""A set of numbers as disjoint closed intervals, ascending, that never touch each other.

Not here: the meaning of the numbers (`reader.heads`, `replica.filtering`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

_PAIR = struct.Struct(">QQ")


class Intervals:
    """A set of numbers as closed intervals. `len` is the number of intervals, not of numbers."""

    __slots__ = ("_highs", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def __len__(self) -> int:
        return len(self._lows)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._lows, self._highs, strict=True)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._lows, number) - 1
        return at >= 0 and number <= self._highs[at]

    def within(self, low: int, high: int) -> list[tuple[int, int]]:
        """Returns the parts of [low, high] in the set, ascending."""
        at = bisect_left(self._highs, low)
        found = []
        while at < len(self._lows) and self._lows[at] <= high:
            found.append((max(low, self._lows[at]), min(high, self._highs[at])))
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
        start, end = bisect_left(self._highs, low - 1), bisect_right(self._lows, high + 1)
        if start < end:
            low, high = min(low, self._lows[start]), max(high, self._highs[end - 1])
        self._lows[start:end], self._highs[start:end] = [low], [high]

    def remove(self, low: int, high: int) -> None:
        """Removes [low, high]."""
        start, end = bisect_left(self._highs, low), bisect_right(self._lows, high)
        if start >= end or low > high:
            return
        rest = [(self._lows[start], low - 1), (high + 1, self._highs[end - 1])]
        kept = [pair for pair in rest if pair[0] <= pair[1]]
        self._lows[start:end], self._highs[start:end] = [pair[0] for pair in kept], [pair[1] for pair in kept]

    def remove_up_to(self, high: int) -> None:
        """Removes all numbers up to `high`."""
        if self._lows and self._lows[0] <= high:
            self.remove(self._lows[0], high)

    def drop_lowest(self) -> None:
        """Removes the lowest interval; there must be one."""
        del self._lows[0], self._highs[0]

    def encode(self) -> bytes:
        """Returns each interval as two numbers of 8 bytes."""
        return b"".join([_PAIR.pack(low, high) for low, high in self])

    @classmethod
    def decode(cls, data: bytes) -> Intervals:
        """Decodes the bytes of `encode`. Raises ValueError for other bytes."""
        found = cls()
        if len(data) % _PAIR.size:
            raise ValueError("intervals are cut short")
        for low, high in _PAIR.iter_unpack(data):
            if low > high or (found._highs and low <= found._highs[-1] + 1):
                raise ValueError("intervals are not ascending and apart")
            found._lows.append(low)
            found._highs.append(high)
        return found
