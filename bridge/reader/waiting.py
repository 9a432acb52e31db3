"""Publications with room in a stream of a reader waiting for content, key or predecessor.

They are found by key and by publisher, who may have to make room; each stream has a time for its next check.
`collector` decides on them, `room` limits them, `overflow` keeps publications without room.
"""

from __future__ import annotations

import heapq

from bridge.reader.room import HeldRoom
from bridge.reader.streams import Held, Stream, StreamId
from keys.envelope import Mode

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

    def put(self, stream: Stream, held: Held) -> None:
        """Puts a publication into this stream, in which its number does not wait yet."""
        header = held.admitted.header
        stream.held[header.sequence] = held
        self._room.add(header.publisher, held.size)
        stream_id, streams = held.stream_id, self._streams.setdefault(header.publisher, {})
        streams[stream_id] = streams.get(stream_id, 0) + 1
        if header.mode is not Mode.PLAIN:
            self._by_key.setdefault(header.key_id, set()).add((*stream_id, header.sequence))

    def take(self, stream: Stream, sequence: int) -> Held:
        """Removes a publication waiting no more."""
        held = stream.held.pop(sequence)
        header = held.admitted.header
        self._room.remove(header.publisher, held.size)
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

    def of(self, publisher: bytes) -> StreamId | None:
        """Returns the stream of this publisher with the longest wait."""
        return next(iter(self._streams.get(publisher, ())), None)

    def left(self) -> set[bytes]:
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

    def due(self, now: float) -> StreamId | None:
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
