"""State of an author's publications in a single scope at a subscriber: delivered and waiting ones.

Numbers rise over all scopes of a publisher, so a single scope sees jumps (`Head`). An overtaken publication of any jump
can still come, late and once. A retained publication that may be old waits in a stream of its own, so that it delays
nothing: in the scope's stream only its number is marked. Keys, time and the way of delivery are elsewhere.

A `Head` is the record of a member's batches that a reader has seen in a single scope. A seen batch was delivered, void,
or refused after it was opened. Behind the head there are at most `GAPS_MAX` intervals of unseen numbers. *Missed*
numbers belong to batches the chain names and that did not come in time: such a batch is delivered late when it comes.
If a full table would lose a missed number (`is_full_for`), the oldest one is forgotten first (`make_room`). *Open*
numbers are numbers no reliable batch was known to have: they are few, and are forgotten first. A batch delivered from a
flagged copy before its turn is *marked* until the head passes it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from bridge.base import Intervals, Row, Transitions
from bridge.document import batch_topic
from bridge.wire import Admitted

GAPS_MAX = 4096
OPEN_MAX = 64  # of them open: nobody waits for what nobody named
MARKS_MAX = 4096  # numbers delivered as retained before their turn; a full table marks no more
_LENGTHS = struct.Struct(">BQIII")
_VERSION = 1


class Head:
    """The seen and unseen batch numbers of a member in a single scope."""

    __slots__ = ("_marks", "_missed", "_open", "number")

    def __init__(self) -> None:
        self.number = 0
        """The highest number that is seen, given up or skipped."""
        self._missed = Intervals()
        self._open = Intervals()
        self._marks = Intervals()

    def unseen(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns the runs of [first, last] that were not seen, ascending."""
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
        if number > self.number:  # the usual case, of what comes next
            return bool(self._marks.lows) and number in self._marks
        return number not in self._missed and number not in self._open

    def is_full_for(self, previous: int) -> bool:
        """Returns True if taking a successor of `previous` now would forget a missed number."""
        return (
            previous > self.number
            and len(self._missed) >= GAPS_MAX
            and bool(self._marks.without(self.number + 1, previous))
        )

    def mark_successors(self, first: int, last: int, previous: int) -> None:
        """Marks [first, last], the successors of `previous` in their chain, as seen. Call `make_room` before."""
        if first <= self.number:  # else neither has it
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
        if self._marks.lows:
            self._marks.remove_up_to(last)
        if self._open.lows:
            self._shrink()

    def _shrink(self) -> None:
        while len(self._open) > OPEN_MAX or (self._open and len(self._open) + len(self._missed) > GAPS_MAX):
            self._open.drop_lowest()

    def make_room(self, previous: int) -> None:
        """Forgets the oldest missed numbers while the table is full for a successor of `previous`; forgotten numbers
        count as seen. For streams that may not stand still for ever.
        """
        while self.is_full_for(previous):
            self._missed.drop_lowest()

    def mark_number(self, number: int) -> bool:
        """Marks a single number as seen before its turn. Returns False if too many numbers are marked."""
        if number <= self.number:
            self._missed.remove(number, number)
            self._open.remove(number, number)
            return True
        if len(self._marks) >= MARKS_MAX and number not in self._marks:
            return False
        self._marks.add(number, number)
        return True

    def mark_also(self, other: Head) -> None:
        """Marks the numbers that are marked in another head."""
        for low, high in other._marks:
            for number in range(low, high + 1):
                self.mark_number(number)

    @property
    def missed(self) -> tuple[tuple[int, int], ...]:
        """The intervals of missed numbers, ascending."""
        return tuple(self._missed)

    @property
    def is_empty(self) -> bool:
        """True if nothing was seen."""
        return self.number == 0 and not self._marks

    @property
    def gaps(self) -> int:
        """The number of intervals behind the head."""
        return len(self._missed) + len(self._open)

    def encode(self) -> bytes:
        """Encodes the head for a file that this party itself reads again."""
        parts = [part.encode() for part in (self._missed, self._open, self._marks)]
        return _LENGTHS.pack(_VERSION, self.number, *map(len, parts)) + b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Decodes the output of `encode`. Raises ValueError for anything else."""
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
    """Joins adjacent runs."""
    joined: list[tuple[int, int]] = []
    for low, high in runs:
        if joined and low == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined


StreamId: TypeAlias = tuple[bytes, str]
"""Author and wire topic. The topic is the publication's own for a retained one that may be old; otherwise the topic of
the scope's batches under its first number (`Scope.stream`), whatever its present tokens.
"""


class HeldStage(StrEnum):
    """The stage of a publication in its stream: what it lacks, or what became of it."""

    CONTENT = "content"
    KEY = "key"
    PREDECESSOR = "predecessor"
    READY = "ready"
    SET_ASIDE = "set aside"
    DROPPED = "dropped"
    DELIVERED = "delivered"


class HeldTurn(StrEnum):
    """An event in the life of a publication in its stream."""

    NEXT = "its turn"
    OVER = "wait over"


HELD = Transitions(
    "A publication at a reader",
    (HeldStage.CONTENT, HeldStage.KEY, HeldStage.PREDECESSOR, HeldStage.READY),
    (
        Row(HeldTurn.NEXT, (HeldStage.READY,), HeldStage.DELIVERED, "its records are decrypted, judged and handed out"),
        Row(HeldTurn.OVER, (HeldStage.CONTENT,), HeldStage.DROPPED, "its number is a gap, which waits no more"),
        Row(
            HeldTurn.OVER,
            (HeldStage.KEY,),
            HeldStage.SET_ASIDE,
            "it delays nothing; its key brings it back",
        ),
        Row(
            HeldTurn.OVER,
            (HeldStage.PREDECESSOR,),
            HeldStage.DELIVERED,
            "over the hole; a predecessor now is late",
        ),
    ),
    "delivered or dropped, or set aside and evicted; what it lacks is looked up anew whenever its stream goes on",
)
COUNTED = {HeldStage.CONTENT: "incomplete", HeldStage.KEY: "unopened", HeldStage.PREDECESSOR: "holes"}
"""The figure of each wait that is over, by what was lacking."""


@dataclass(slots=True)
class Held:
    """A publication waiting for its content (None until it is whole), its key or its predecessor."""

    admitted: Admitted
    content: bytes | None = field(repr=False)
    topic: str
    arrived: float
    author: bytes
    """The party under which the number was given (`intake`)."""
    replayed: bool = False
    """True if the publication was retained before this reader asked for it, or may be old: it waits for no
    predecessor.
    """
    is_over: bool = False
    """True if the deadline passed before arrival: no content any more, but a place in the chain of the scope."""
    scope_stream: StreamId = field(init=False)
    """The stream of the scope."""
    name: tuple[bytes, str, int] = field(init=False)
    """The name, see `name_of`."""

    def __post_init__(self) -> None:
        self.scope_stream = self.author, batch_topic(self.admitted.scope.stream)
        self.name = name_of(self.topic, self.admitted)

    @property
    def stream_id(self) -> StreamId:
        """The stream in which the publication waits for its turn."""
        return (self.author, self.topic) if self.replayed else self.scope_stream

    @property
    def size(self) -> int:
        """The size in bytes of the content that is here."""
        return len(self.content or b"")

    def may_follow(self, sequence: int) -> bool:
        """Returns True if that smaller number may belong to the publication's chain."""
        return not 0 < self.admitted.header.previous < sequence

    def gains(self, admitted: Admitted) -> bool:
        """Returns True if the arrived sealing is later than the waiting one, or may bring missing pieces."""
        before, came = self.admitted.header.order, admitted.header.order
        return came >= before if self.content is None else came > before


@dataclass(slots=True)
class Stream:
    """The delivered and waiting publications. `generation` is the subscription of the last delivery; `first` is the
    first number delivered under it.
    """

    first: int | None = None
    head: Head = field(default_factory=Head)
    held: dict[int, Held] = field(default_factory=dict)
    generation: int = -1
    time_ms: int = 0
    """The time of sealing of the highest delivered number; 0 if a former process delivered it."""
    searched: int = 0
    """The highest number up to which the history was read for what is missing."""

    @property
    def highest(self) -> int:
        """The highest number that was delivered."""
        return self.head.number

    @property
    def remembers(self) -> bool:
        """True if a number was delivered or marked as delivered."""
        return not self.head.is_empty

    def is_known(self, generation: int) -> bool:
        """Returns True if a publication was delivered under this subscription."""
        return self.first is not None and self.generation == generation

    def knows_number(self, sequence: int, generation: int) -> bool:
        """Returns True if the state covers this number: a number at or before it was delivered under this
        subscription.
        """
        return self.first is not None and sequence >= self.first and self.generation == generation

    def delivered(self, sequence: int) -> bool:
        """Returns True if the number was delivered, or is too old to tell."""
        return self.head.has_seen(sequence)

    def mark_delivered(self, sequence: int, previous: int, generation: int) -> bool:
        """Marks an undelivered successor of `previous` (0 if unknown) as delivered. Returns True if a later one came
        before.
        """
        late = sequence <= self.head.number
        if self.first is None or self.generation != generation:
            self.first, self.generation = sequence, generation
            previous = 0  # what was before the first is not missed
        self.head.make_room(previous)
        self.head.mark_successors(sequence, sequence, previous)
        return late


def name_of(topic: str, admitted: Admitted) -> tuple[bytes, str, int]:
    """Returns publisher, wire topic and number of a publication."""
    return admitted.header.publisher, topic, admitted.header.sequence


def scope_stream(author: bytes, stream: int) -> StreamId:
    """Returns the stream of an author in a scope; `stream` is the scope's first number."""
    return author, batch_topic(stream)
