"""What a reader has seen of one member's batches in one scope, by first number: a head, and what is unseen behind it.

Seen means delivered, void, or refused after it was opened. Behind the head there are at most `GAPS_MAX` intervals of
unseen numbers. *Missed* ones are of batches that the chain names and that did not come in time: they are delivered late
when they come. Where a full table would lose one (`is_full_for`), the oldest is forgotten first (`make_room`).
*Open* ones are numbers that no reliable batch was known to have: they are few, and are forgotten first. What was
delivered from a flagged copy before its turn is *marked* until the head passes it. Not here: time, what waits for its
turn (`streams`)."""

from __future__ import annotations

import struct

from bridge.base import Intervals

GAPS_MAX = 4096
OPEN_MAX = 64  # of them open: nobody waits for what nobody named
MARKS_MAX = 4096  # numbers delivered as retained before their turn; a full table marks no more
_LENGTHS = struct.Struct(">BQIII")
_VERSION = 1


class Head:
    """See the module."""

    __slots__ = ("_marks", "_missed", "_open", "number")

    def __init__(self) -> None:
        self.number = 0
        """The highest number that is seen, or given up, or jumped over."""
        self._missed = Intervals()
        self._open = Intervals()
        self._marks = Intervals()

    def unseen(self, first: int, last: int) -> list[tuple[int, int]]:
        """The runs of [first, last] that were not seen, ascending."""
        if first > self.number:
            return self._marks.without(first, last) if self._marks else [(first, last)]
        found = []
        behind = min(last, self.number)
        if self._missed or self._open:
            found = sorted((*self._missed.within(first, behind), *self._open.within(first, behind)))
        if last > self.number:
            found += self._marks.without(self.number + 1, last)
        return _joined(found)

    def has_seen(self, number: int) -> bool:
        return not self.unseen(number, number)

    def is_full_for(self, previous: int) -> bool:
        """Whether taking what follows `previous` now would make us forget a missed number."""
        return (
            previous > self.number
            and len(self._missed) >= GAPS_MAX
            and bool(self._marks.without(self.number + 1, previous))
        )

    def take(self, first: int, last: int, previous: int) -> None:
        """[first, last], which follow `previous` in their chain, are seen. `make_room` goes before."""
        self._missed.remove(first, last)
        self._open.remove(first, last)
        if previous < self.number:  # what lies between belongs to nobody in this chain: no loss, if it does not come
            for low, high in self._missed.within(previous + 1, first - 1) if previous else ():
                self._missed.remove(low, high)
                self._open.add(low, high)
        if last <= self.number:
            self._shrink()
            return
        for low, high in self._marks.without(self.number + 1, previous) if previous > self.number else ():
            self._missed.add(low, high)
        for low, high in self._marks.without(max(self.number, previous) + 1, first - 1):
            self._open.add(low, high)
        self.number = last
        if self._marks:
            self._marks.remove_up_to(last)
        self._shrink()

    def _shrink(self) -> None:
        while len(self._open) > OPEN_MAX or (self._open and len(self._open) + len(self._missed) > GAPS_MAX):
            self._open.drop_lowest()

    def make_room(self, previous: int) -> None:
        """For whom nothing may stand for ever: forget the oldest missed numbers if the table is full for what follows
        `previous`. They count as seen."""
        while self.is_full_for(previous):
            self._missed.drop_lowest()

    def mark(self, number: int) -> bool:
        """One number is seen before its turn. False: too many are."""
        if number <= self.number:
            self._missed.remove(number, number)
            self._open.remove(number, number)
            return True
        if len(self._marks) >= MARKS_MAX and number not in self._marks:
            return False
        self._marks.add(number, number)
        return True

    @property
    def is_empty(self) -> bool:
        """Whether nothing was seen."""
        return self.number == 0 and not self._marks

    @property
    def gaps(self) -> int:
        """Intervals behind the head."""
        return len(self._missed) + len(self._open)

    def encode(self) -> bytes:
        """For a file of the same party."""
        parts = [part.encode() for part in (self._missed, self._open, self._marks)]
        return _LENGTHS.pack(_VERSION, self.number, *map(len, parts)) + b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Inverse of `encode`. Raises ValueError for anything else."""
        try:
            version, number, *lengths = _LENGTHS.unpack_from(data)
        except struct.error:
            raise ValueError("a head is cut short") from None
        if version != _VERSION or len(data) != _LENGTHS.size + sum(lengths):
            raise ValueError("a head of another version or length")
        head, at, parts = cls(), _LENGTHS.size, []
        for length in lengths:
            parts.append(Intervals.decode(data[at : at + length]))
            at += length
        head.number, (head._missed, head._open, head._marks) = number, parts
        return head


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs that touch, as one."""
    joined: list[tuple[int, int]] = []
    for low, high in runs:
        if joined and low == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined
