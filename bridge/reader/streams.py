"""What a subscriber remembers of one publisher's publications on one topic: what came, and what waits.

Numbers rise over all of a publisher's topics, so that one topic sees jumps (`heads`); out of each, what was overtaken
can still come, late and once. Not here: keys, time, what is delivered how.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.reader.heads import Head
from bridge.wire import Admitted


@dataclass(slots=True)
class Held:
    """A publication that waits for its content (None until it is whole), its key or its predecessor."""

    admitted: Admitted
    content: bytes | None = field(repr=False)
    topic: str
    arrived: float
    replayed: bool = False
    """It was retained and may be old: whether its predecessor comes is no question."""

    @property
    def size(self) -> int:
        """Bytes of its content, as far as it is here."""
        return len(self.content or b"")

    def gains(self, admitted: Admitted) -> bool:
        """Whether what came is a later sealing than what waits, or may bring pieces that it waits for."""
        before_ms, came_ms = self.admitted.header.time_ms, admitted.header.time_ms
        return came_ms >= before_ms if self.content is None else came_ms > before_ms


@dataclass(slots=True)
class Stream:
    """`first`: the first number that was delivered. `generation`: that of the subscription under which something was
    delivered last."""

    first: int | None = None
    head: Head = field(default_factory=Head)
    held: dict[int, Held] = field(default_factory=dict)
    generation: int = -1

    @property
    def highest(self) -> int:
        """The highest number that was delivered."""
        return self.head.number

    def knows(self, sequence: int) -> bool:
        """Whether there is state about this sequence: something at or before it was delivered."""
        return self.first is not None and sequence >= self.first

    def delivered(self, sequence: int) -> bool:
        """Whether it came, or came too long ago to tell."""
        return self.head.has_seen(sequence)

    def deliver(self, sequence: int, previous: int = 0) -> bool:
        """Mark one that was not delivered and follows `previous`, 0 for unknown; True if it is late: a later one came
        before."""
        late = sequence <= self.head.number
        if self.first is None:
            self.first, previous = sequence, 0  # what was before the first is not missed
        self.head.make_room(previous)
        self.head.take(sequence, sequence, previous)
        return late
