"""One member's batches of one scope at a reader, in their turn.

A batch that is whole and can be opened is *offered*; what of it was not seen is *ready* when the record before it in
the chain was seen. It waits for that one for `repair_s`, and not at all if that one is older than our subscription.
However the records were cut into batches, and whatever was cut anew: each number is ready once, and in order unless
something was given up. A batch that is not whole is not offered, so it holds nothing up that another cut brings.
Not here: keys, content, durability, what is asked of others for a gap (`gaps` says what is missing).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bridge.reader.heads import Head
from keys.batchheader import BatchHeader
from keys.values import value

T = TypeVar("T")


@value
class Ready(Generic[T]):
    """What is delivered of a batch: the unseen runs of its numbers. `late`: something after it was delivered before.
    `gave_up`: what came before it is missing."""

    header: BatchHeader
    item: T
    runs: list[tuple[int, int]]
    late: bool = False
    gave_up: bool = False


@dataclass(slots=True, order=True)
class _Held(Generic[T]):
    sort_key: tuple[int, int, int, bytes]
    header: BatchHeader = field(compare=False)
    item: T = field(compare=False)
    since: float = field(compare=False)


class Chain(Generic[T]):
    """See the module. `head`: what was seen before, from a file."""

    __slots__ = ("_held", "head")

    def __init__(self, head: Head | None = None) -> None:
        self.head = head or Head()
        self._held: list[_Held[T]] = []

    def __len__(self) -> int:
        """Batches that wait."""
        return len(self._held)

    def wants(self, header: BatchHeader) -> bool:
        """Whether the batch has a number that was not seen, and does not wait here already."""
        if header.first <= self.head.number and not self.head.unseen(header.first, header.last):
            return False
        return not any(_same(held.header, header) for held in self._held)

    def offer(self, header: BatchHeader, item: T, now: float) -> None:
        """A batch that is whole and that we `wants`."""
        key = (header.first, header.generation, header.counter, header.key_id)
        insort(self._held, _Held(key, header, item, now))

    def advance(self, now: float, repair_s: float, accepted_ms: int) -> list[Ready[T]]:
        """What is ready, lowest number first. `accepted_ms`: when our subscription began to count; what was recorded
        earlier is not waited for."""
        ready: list[Ready[T]] = []
        while (step := self._step(now, repair_s, accepted_ms)) is not None:
            ready += step
        return ready

    def _step(self, now: float, repair_s: float, accepted_ms: int) -> list[Ready[T]] | None:
        """The next batch that leaves here; None if none may."""
        for at, held in enumerate(self._held):
            header, head = held.header, self.head
            runs = head.unseen(header.first, header.last)
            misses = header.previous > head.number and header.previous_ms > accepted_ms
            waits = misses and now - held.since < repair_s
            if runs and (waits or head.is_full_for(header.previous)):
                continue
            del self._held[at]
            if not runs:
                return []
            late = header.first <= head.number
            head.take(header.first, header.last, header.previous)
            return [] if header.is_void else [Ready(header, held.item, runs, late, misses)]
        return None

    def gaps(self, accepted_ms: int) -> Iterator[tuple[int, int]]:
        """Runs of numbers that what waits here waits for: to be asked for."""
        asked = self.head.number
        for held in self._held:
            header = held.header
            if header.previous > asked and header.previous_ms > accepted_ms:
                yield from self.head.unseen(asked + 1, header.previous)
            asked = max(asked, header.last)

    def drain(self) -> list[T]:
        """Everything that waits leaves without its turn, as if it had never come."""
        items = [held.item for held in self._held]
        self._held.clear()
        return items

    def next_deadline(self, repair_s: float) -> float | None:
        """When something stops waiting."""
        return min((held.since for held in self._held), default=float("inf")) + repair_s if self._held else None


def _same(one: BatchHeader, other: BatchHeader) -> bool:
    return one.first == other.first and one.key_id == other.key_id and one.is_void is other.is_void
