"""Publications with room in a stream of a reader waiting for content, key or predecessor.

They are found by key and by publisher, who may have to make room; each stream has a time for its next check.
`collector` decides on them, `HeldRoom` limits them, `overflow` keeps publications without room.

`HeldRoom` bounds the number of a publisher's publications, and the bytes of all. A publisher gets at most a quarter of
the bytes, and only its fair part once the total is reached: a publisher filling others' room cannot take all of it.
`collector` decides which publications wait, and for what.

`Keyless` keeps publications whose data key is so late that their successors no longer wait for them. While fewer than n
− f replicas of a region on the path are connected, content arrives without its key: all copies of a publication may be
here long before enough shares are. A dropped publication would be lost, since nobody sends it again. So the publication
is kept until its key comes, and delays no other. `key_opening` opens keys.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from bridge.contract import FairBytes
from bridge.reader.streams import Held, Stream, StreamId
from keys.envelope import Mode

HELD_MAX = 4096  # publications of one publisher
HELD_BYTES_MAX = 256 << 20  # of all; those below their fair part may go beyond it, at most to twice as much
PARTS = 4


class HeldRoom:
    """The room taken by each publisher, and the total in bytes."""

    def __init__(self) -> None:
        self._held: dict[bytes, tuple[int, int]] = {}  # by publisher: how many, and their bytes
        self._bytes = 0

    def has_for(self, publisher: bytes, size: int) -> bool:
        """Returns True if another publication of that many bytes may wait. Each publisher may always have a single
        waiting.
        """
        count, before = self._held.get(publisher, (0, 0))
        if not count:
            return True
        parts = PARTS if self._bytes <= HELD_BYTES_MAX else max(PARTS, len(self._held))
        return count < HELD_MAX and before + size <= HELD_BYTES_MAX // parts

    def add_publication(self, publisher: bytes, size: int) -> None:
        """Adds a waiting publication."""
        count, before = self._held.get(publisher, (0, 0))
        self._held[publisher] = count + 1, before + size
        self._bytes += size

    def remove_publication(self, publisher: bytes, size: int) -> None:
        """Removes a publication that was added with that many bytes."""
        count, before = self._held.pop(publisher)
        if count > 1:
            self._held[publisher] = count - 1, before - size
        self._bytes -= size


KEYLESS_BYTES = 64 << 20  # of publications without a key; a flooder loses its own oldest
KEPT_OVERHEAD_BYTES = 4096  # what header and tables cost beside the content: bounds the number too

Name: TypeAlias = tuple[bytes, str, int]  # publisher, wire topic, sequence


class Keyless:
    """Publications waiting for their data key only, found by name or by key."""

    def __init__(self) -> None:
        self._held: FairBytes[Name, Held] = FairBytes(KEYLESS_BYTES, KEPT_OVERHEAD_BYTES)
        self._by_key: dict[bytes, dict[Name, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def holds_name(self, name: Name) -> bool:
        """Returns True if the publication waits here."""
        return self._held.get(name) is not None

    def put_held(self, held: Held) -> bool:
        """Keeps a publication. Returns False if another one was dropped to make room."""
        header = held.admitted.header
        name = (header.publisher, held.topic, header.sequence)
        before = self._held.pop(name)
        if before is not None:
            self._forget_held(before)
        self._by_key.setdefault(header.key_id, {})[name] = None
        gone = self._held.put(name, header.publisher, held, held.size)
        for _, other in gone:
            self._forget_held(other)
        return not gone

    def take_held(self, key_id: bytes) -> list[Held]:
        """Removes the publications that waited for this key and returns them in order of sequence."""
        found = [self._held.pop(name) for name in self._by_key.pop(key_id, ())]
        return sorted((held for held in found if held is not None), key=lambda held: held.admitted.header.sequence)

    def _forget_held(self, held: Held) -> None:
        header = held.admitted.header
        names = self._by_key[header.key_id]
        del names[header.publisher, held.topic, header.sequence]
        if not names:
            del self._by_key[header.key_id]


REPAIR_S = 10.0
"""The longest wait, in seconds."""


class Waiting:
    """The waiting publications in all streams of a reader."""

    def __init__(self) -> None:
        self._room = HeldRoom()
        self._by_key: dict[bytes, set[tuple[bytes, str, int]]] = {}
        self._streams: dict[bytes, dict[StreamId, int]] = {}  # by publisher: where how many of its wait
        self._left: set[bytes] = set()
        self._deadlines: dict[StreamId, float] = {}
        self._wakeups: list[tuple[float, StreamId]] = []  # a heap; those that `_deadlines` does not confirm are stale

    def has_room(self, held: Held) -> bool:
        """Returns True if another publication may wait."""
        return self._room.has_for(held.admitted.header.publisher, held.size)

    def put_held(self, stream: Stream, held: Held) -> None:
        """Puts a publication into this stream, in which its number does not wait yet."""
        header = held.admitted.header
        stream.held[header.sequence] = held
        self._room.add_publication(header.publisher, held.size)
        stream_id, streams = held.stream_id, self._streams.setdefault(header.publisher, {})
        streams[stream_id] = streams.get(stream_id, 0) + 1
        if header.mode is not Mode.PLAIN:
            self._by_key.setdefault(header.key_id, set()).add((*stream_id, header.sequence))

    def take_held(self, stream: Stream, sequence: int) -> Held:
        """Removes a publication waiting no more."""
        held = stream.held.pop(sequence)
        header = held.admitted.header
        self._room.remove_publication(header.publisher, held.size)
        self._left.add(header.publisher)
        stream_id, streams = held.stream_id, self._streams[header.publisher]
        if streams[stream_id] > 1:
            streams[stream_id] -= 1
        elif len(streams) > 1:
            del streams[stream_id]
        else:
            del self._streams[header.publisher]
        named = self._by_key.get(header.key_id)
        if named is not None:
            named.discard((*stream_id, sequence))
            if not named:
                del self._by_key[header.key_id]
        return held

    def naming(self, key_id: bytes) -> list[StreamId]:
        """Returns the streams with waiting publications under this key."""
        return sorted({(author, topic) for author, topic, _ in self._by_key.get(key_id, ())})

    def longest_waiting(self, publisher: bytes) -> StreamId | None:
        """Returns the stream of this publisher with the longest wait."""
        return next(iter(self._streams.get(publisher, ())), None)

    def take_left_publishers(self) -> set[bytes]:
        """Returns publishers with a publication that left since the last call: there may be room."""
        left, self._left = self._left, set()
        return left

    def wakes(self, stream_id: StreamId, at: float | None) -> None:
        """Sets the time of the next check of a stream; None if nothing there waits for a time."""
        if at is None:
            self._deadlines.pop(stream_id, None)
        elif self._deadlines.get(stream_id) != at:
            self._deadlines[stream_id] = at
            heapq.heappush(self._wakeups, (at, stream_id))

    def due_stream(self, now: float) -> StreamId | None:
        """Returns a single stream to check, each time another, until None. A stream is due when its time has come, or
        is further away than the longest wait, since the clock was set back.
        """
        while self._wakeups and not 0 < self._wakeups[0][0] - now <= REPAIR_S:
            at, stream_id = heapq.heappop(self._wakeups)
            if self._deadlines.get(stream_id) == at:
                return stream_id
        return None

    @property
    def next_deadline(self) -> float | None:
        while self._wakeups and self._deadlines.get(self._wakeups[0][1]) != self._wakeups[0][0]:
            heapq.heappop(self._wakeups)
        return self._wakeups[0][0] if self._wakeups else None
