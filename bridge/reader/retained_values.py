"""Which retained record of a topic is the newest, at a reader that has just joined.

Flagged copies of batches, and snapshots, bring what was retained before we came. A liar may bring any that was ever
signed, so candidates wait `RETAINED_WAIT_S` for their betters, and the greatest (time of the record, member, number)
is the topic's. Of a flagged copy only records count that are older than our subscription: what is newer comes in its
turn. What was delivered so is marked in its member's head, so that it does not come again, and a live record of the
topic that is older is dropped. Not here: rights and keys; which records of a batch are retained."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeAlias, TypeVar

from bridge.contract import FairTable
from keys.batchheader import BatchHeader
from keys.values import value

T = TypeVar("T")

RETAINED_WAIT_S = 0.5  # for replicas to send what they retain
NEWEST_MAX = 20_000  # topics whose newest retained record is remembered; a flooder forgets its own first
WAITING_MAX = 10_000  # topics whose retained record waits

FloorOrder: TypeAlias = tuple[int, int, int]
Order: TypeAlias = tuple[int, bytes, int]
"""Time of the record in ms, its member, its number."""


@value
class Candidate(Generic[T]):
    """A retained record of the scope with this number; `id`: of its topic, as headers list it."""

    scope: int
    id: bytes
    topic: str
    order: Order
    item: T


class RetainedValues(Generic[T]):
    """Per clear topic the newest retained record so far, and candidates that wait."""

    def __init__(self) -> None:
        self._newest: FairTable[str, Order] = FairTable(NEWEST_MAX)
        self._waiting: FairTable[str, Candidate[T]] = FairTable(WAITING_MAX)
        self._until: OrderedDict[str, float] = OrderedDict()  # oldest first, all wait equally long
        self._floors: dict[tuple[int, bytes], tuple[FloorOrder, dict[bytes, int]]] = {}  # by scope and member

    def floor(self, header: BatchHeader) -> None:
        """A verified floor: below its number only what it lists is retained of its member. A batch that is kept for one
        topic may hold an old value of another, and a liar offers what was deleted."""
        floor = header.generation, header.counter, header.previous
        known = self._floors.get((header.scope, header.member))
        if known is None or known[0] < floor:
            listed = {entry.id: entry.number for entry in header.retained}
            self._floors[header.scope, header.member] = floor, listed

    def _is_retained(self, candidate: Candidate[T]) -> bool:
        _, member, number = candidate.order
        known = self._floors.get((candidate.scope, member))
        return known is None or number >= known[0][2] or known[1].get(candidate.id) == number

    def offer(self, candidate: Candidate[T], now: float) -> bool:
        """Let it wait with others of its topic; False if a newer one is known, so that it is a replay."""
        best = self._waiting.get(candidate.topic)
        known = best is not None and candidate.order <= best.order
        if known or not self.is_newer(candidate.topic, candidate.order) or not self._is_retained(candidate):
            return False
        gone = self._waiting.put(candidate.topic, candidate.order[1], candidate)
        self._until.setdefault(candidate.topic, now + RETAINED_WAIT_S)
        if gone is not None:
            self._until.pop(gone[0], None)
        return True

    def due(self, now: float) -> list[Candidate[T]]:
        """Those that waited long enough and are still their topics' newest; they are from now on."""
        ready = []
        while self._until and next(iter(self._until.values())) <= now:
            topic, _ = self._until.popitem(last=False)
            candidate = self._waiting.pop(topic)
            still = candidate is not None and self._is_retained(candidate)
            if candidate is not None and still and self.is_newer(topic, candidate.order):
                self.delivered(topic, candidate.order)
                ready.append(candidate)
        return ready

    def delivered(self, topic: str, order: Order) -> None:
        """A retained record is the topic's newest now."""
        if self.is_newer(topic, order):
            self._newest.put(topic, order[1], order)

    def is_newer(self, topic: str, order: Order) -> bool:
        """Whether it would be the topic's newest."""
        newest = self._newest.get(topic)
        return newest is None or order > newest

    def is_overtaken(self, topic: str, order: Order, accepted_ms: int) -> bool:
        """Whether a live record is older than what was delivered as retained, and than our subscription."""
        return order[0] <= accepted_ms and not self.is_newer(topic, order)

    @property
    def next_deadline(self) -> float | None:
        return next(iter(self._until.values()), None)
