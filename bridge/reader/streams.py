"""State of an author's publications in a single scope at a subscriber: delivered and waiting ones.

Numbers rise over all scopes of a publisher, so a single scope sees jumps (`heads`). An overtaken publication of any
jump can still come, late and once. A retained publication that may be old waits in a stream of its own, so that it
delays nothing: in the scope's stream only its number is marked. Keys, time and the way of delivery are elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.document import batch_topic
from bridge.reader.heads import Head
from bridge.wire import Admitted

StreamId: TypeAlias = tuple[bytes, str]
"""Author and wire topic. The topic is the publication's own for a retained one that may be old; otherwise the topic of
the scope's batches under its first number (`Scope.stream`), whatever its present tokens.
"""


@dataclass(slots=True)
class Held:
    """A publication waiting for its content (None until it is whole), its key or its predecessor."""

    admitted: Admitted
    content: bytes | None = field(repr=False)
    topic: str
    arrived: float
    author: bytes
    """The party under which the number was given (`lineages`)."""
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

    def knows(self, sequence: int, generation: int) -> bool:
        """Returns True if the state covers this number: a number at or before it was delivered under this
        subscription.
        """
        return self.first is not None and sequence >= self.first and self.generation == generation

    def delivered(self, sequence: int) -> bool:
        """Returns True if the number was delivered, or is too old to tell."""
        return self.head.has_seen(sequence)

    def deliver(self, sequence: int, previous: int, generation: int) -> bool:
        """Marks an undelivered successor of `previous` (0 if unknown) as delivered. Returns True if a later one came
        before.
        """
        late = sequence <= self.head.number
        if self.first is None or self.generation != generation:
            self.first, self.generation = sequence, generation
            previous = 0  # what was before the first is not missed
        self.head.make_room(previous)
        self.head.take(sequence, sequence, previous)
        return late


def name_of(topic: str, admitted: Admitted) -> tuple[bytes, str, int]:
    """Returns publisher, wire topic and number of a publication."""
    return admitted.header.publisher, topic, admitted.header.sequence


def scope_stream(author: bytes, stream: int) -> StreamId:
    """Returns the stream of an author in a scope; `stream` is the scope's first number."""
    return author, batch_topic(stream)
