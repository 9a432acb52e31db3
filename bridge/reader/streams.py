"""What a subscriber remembers of one publisher's publications in one scope: what came, and what waits.

Numbers rise over all scopes of a publisher, so that one scope sees jumps (`heads`); out of each, what was overtaken
can still come, late and once. What is retained and may be old waits in a stream of its own, that it holds nothing up:
of the scope's it only marks its number. Not here: keys, time, what is delivered how.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.document import batch_topic
from bridge.reader.heads import Head
from bridge.wire import Admitted

StreamId: TypeAlias = tuple[bytes, str]
"""Author, and wire topic: of what is retained and may be old its own, else that of the scope's batches under its first
number (`Scope.stream`), whatever tokens it has by now."""


@dataclass(slots=True)
class Held:
    """A publication that waits for its content (None until it is whole), its key or its predecessor."""

    admitted: Admitted
    content: bytes | None = field(repr=False)
    topic: str
    arrived: float
    author: bytes
    """Under which party its number was given (`lineages`)."""
    replayed: bool = False
    """It was retained before we asked for it, or may be old: whether its predecessor comes is no question."""
    is_over: bool = False
    """Its deadline passed before it came: it has no content any more, but its place in the chain of its scope."""

    @property
    def stream_id(self) -> StreamId:
        """Where it waits for its turn."""
        return (self.author, self.topic) if self.replayed else self.scope_stream

    @property
    def scope_stream(self) -> StreamId:
        """That of its scope."""
        return scope_stream(self.author, self.admitted.scope.stream)

    @property
    def name(self) -> tuple[bytes, str, int]:
        """See `name_of`."""
        return name_of(self.topic, self.admitted)

    @property
    def size(self) -> int:
        """Bytes of its content, as far as it is here."""
        return len(self.content or b"")

    def may_follow(self, sequence: int) -> bool:
        """Whether that number, a smaller one, may be of its chain."""
        return not 0 < self.admitted.header.previous < sequence

    def gains(self, admitted: Admitted) -> bool:
        """Whether what came is a later sealing than what waits, or may bring pieces that it waits for."""
        before, came = self.admitted.header.order, admitted.header.order
        return came >= before if self.content is None else came > before


@dataclass(slots=True)
class Stream:
    """`generation`: that of the subscription under which something was delivered last; `first`: the first number that
    was delivered under it."""

    first: int | None = None
    head: Head = field(default_factory=Head)
    held: dict[int, Held] = field(default_factory=dict)
    generation: int = -1

    @property
    def highest(self) -> int:
        """The highest number that was delivered."""
        return self.head.number

    @property
    def remembers(self) -> bool:
        """Whether something was delivered, or marked as such."""
        return not self.head.is_empty

    def is_known(self, generation: int) -> bool:
        """Whether something was delivered under this subscription."""
        return self.first is not None and self.generation == generation

    def knows(self, sequence: int, generation: int) -> bool:
        """Whether there is state about this sequence: something at or before it was delivered under this
        subscription."""
        return self.first is not None and sequence >= self.first and self.generation == generation

    def delivered(self, sequence: int) -> bool:
        """Whether it came, or came too long ago to tell."""
        return self.head.has_seen(sequence)

    def deliver(self, sequence: int, previous: int, generation: int) -> bool:
        """Mark one that was not delivered and follows `previous`, 0 for unknown; True if it is late: a later one came
        before."""
        late = sequence <= self.head.number
        if self.first is None or self.generation != generation:
            self.first, self.generation = sequence, generation
            previous = 0  # what was before the first is not missed
        self.head.make_room(previous)
        self.head.take(sequence, sequence, previous)
        return late


def name_of(topic: str, admitted: Admitted) -> tuple[bytes, str, int]:
    """Publisher, wire topic and number of a publication."""
    return admitted.header.publisher, topic, admitted.header.sequence


def scope_stream(author: bytes, stream: int) -> StreamId:
    """That of what an author publishes in a scope; `stream`: the scope's first number."""
    return author, batch_topic(stream)
