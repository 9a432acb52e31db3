"""Lineages of a member's keys: a publication the next key signs anew stays a single publication.

Numbers belong to a publisher, and publishers are named by their signing keys (docs/protocol.md §2.1). After a rotation
a gateway seals earlier numbered publications anew under its next key: after a restart the whole outbox. A number below
1,024 times the former key's end (in ms) belongs to the former key's *lineage*, whichever of the two keys signs. So a
delivered publication is not delivered again, and the chain of a scope goes on. Higher numbers are the next key's own,
which a holder of the former key cannot use up: a gateway starting after that end gives only such numbers
(docs/protocol.md §2.6). All readers decide alike, from the owner's signed documents. The owner lists a former key only
while the key counts, so this module remembers former keys, on disk too. Without the former key's word (a lost key,
replaced) there is no lineage. Delivered publications are recorded elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.document import Overlay, is_retained_topic, read_wire_topic
from bridge.reader.kept import LINEAGE, KeptReader, Name, Rows, of_kind
from bridge.reader.streams import Held, Stream, StreamId, scope_stream
from keys.frames import number

NUMBERS_PER_MS = 1024  # those of a start begin at so many times its milliseconds
FORMER_MAX = 8
"""Remembered rotations of one member; older numbers count as given under the last of these keys."""


class Lineages:
    """Predecessors of the members' keys. `kept` takes the rows for a next process; None if no rows are stored."""

    def __init__(self, overlay: Overlay, kept: KeptReader | None = None) -> None:
        self._kept = kept
        self._former: dict[bytes, tuple[bytes, int]] = {}  # party -> the one before it, and the end of its numbers
        self._next: dict[bytes, list[bytes]] = {}  # the same backwards
        self.adopt(overlay)

    def adopt(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay, in which members may have other keys."""
        self._overlay = overlay
        for member in overlay.members.values():
            if member.before is not None:
                former = member.before.party_id, member.before.not_after_ms * NUMBERS_PER_MS
                self._learn(member.certificate.party_id, *former)
        for party in self._former.keys() - self._in_use():
            self._forget(party)

    def parties(self, publisher: bytes, number: int) -> list[bytes]:
        """Returns the publisher and its predecessors down to the key under which that number was given, the oldest
        last.
        """
        found = [publisher]
        while (former := self._former.get(found[-1])) is not None and number < former[1]:
            found.append(former[0])
        return found

    def author(self, publisher: bytes, number: int) -> bytes:
        """Returns the party under whose key a number was given that this publisher signed."""
        return self.parties(publisher, number)[-1] if publisher in self._former else publisher

    def streams_of(self, name: Name) -> list[StreamId]:
        """Returns the streams in which a publication of this name may wait for its turn."""
        publisher, topic, number = name
        scope = self.scope_stream(publisher, number, topic)
        return [scope, (scope[0], topic)] if is_retained_topic(topic) else [scope]

    def scope_stream(self, publisher: bytes, number: int, topic: str) -> StreamId:
        """Returns the stream of the number's author in the scope a wire topic names. Raises BadFrame for an invalid
        wire topic.
        """
        return scope_stream(self.author(publisher, number), self.stream_of(topic))

    def stream_of(self, topic: str) -> int:
        """Returns the first number of the scope a wire topic names. Raises BadFrame for an invalid wire topic."""
        return self._overlay.stream_of(read_wire_topic(topic).scope)

    def is_to_come(self, topic: str) -> bool:
        """Returns True if a wire topic names a scope of a later version, whose stream is not known yet. Raises
        BadFrame for an invalid wire topic.
        """
        return self._overlay.is_to_come(read_wire_topic(topic).scope)

    def before(self, held: Held) -> list[tuple[bytes, int]]:
        """Returns the possible names, as publisher and number, of the predecessor: a former key may have signed it."""
        header = held.admitted.header
        return [(party, header.previous) for party in self.parties(header.publisher, header.previous)]

    def stream_before(
        self, held: Held, own: Stream, streams: Callable[[StreamId], Stream | None], generation: int
    ) -> Stream | None:
        """Returns the stream that holds the predecessor's state, or None if nothing of the chain was delivered under
        this subscription. `own` is the stream in which the publication waits. A next key's own numbers continue the
        chain of the former key.
        """
        if held.author not in self._former:
            return own if own.is_known(generation) else None
        topic, author = held.scope_stream[1], self.author(held.author, held.admitted.header.previous)
        found = own if author == held.author else streams((author, topic))
        if found is not None and found.is_known(generation):
            return found
        former = [streams((party, topic)) for party in self._before(held.author)[1:]]
        goes_on = any(stream is not None and stream.is_known(generation) for stream in former)
        return own if author == held.author and goes_on else None

    def streams_after(self, stream_id: StreamId) -> list[StreamId]:
        """Returns the streams of the successors of this stream's author in the scope: publications there may have
        waited for this stream.
        """
        return [(party, stream_id[1]) for party in self._next.get(stream_id[0], ())]

    def is_overtaken(self, stream_id: StreamId, streams: Callable[[StreamId], Stream | None]) -> bool:
        """Returns True if a publication of a succeeding key was delivered."""
        after = map(streams, self.streams_after(stream_id))
        return any(stream is not None and stream.first is not None for stream in after)

    def _learn(self, party: bytes, former: bytes, end: int) -> None:
        if party in self._former or party in self._before(former):  # what was decided once stays
            return
        self._succeeds(party, former, end)
        if self._kept is not None:
            self._kept.put(*_row(party, former, end))

    def _succeeds(self, party: bytes, former: bytes, end: int) -> None:
        if party in self._former:
            self._unlink(party)
        self._former[party] = former, end
        self._next.setdefault(former, []).append(party)

    def _unlink(self, party: bytes) -> None:
        former, _ = self._former.pop(party)
        self._next[former].remove(party)
        if not self._next[former]:
            del self._next[former]

    def _before(self, party: bytes) -> list[bytes]:
        found = [party]
        while (former := self._former.get(found[-1])) is not None:
            found.append(former[0])
        return found

    def _in_use(self) -> set[bytes]:
        """Returns the parties whose predecessors matter: present keys of members, and their predecessors."""
        return {party for present in self._overlay.by_party for party in self._before(present)[:FORMER_MAX]}

    def _forget(self, party: bytes) -> None:
        self._unlink(party)
        if self._kept is not None:
            self._kept.drop(LINEAGE + party)

    # ------------------------------------------------------------------------------------------- over restarts

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Returns all rows for a next process, for readers without `kept`."""
        return [_row(party, *known) for party, known in self._former.items()]

    def restore(self, rows: Rows) -> None:
        """Restores lineages from rows of a former process; skips damaged rows."""
        for party, row in of_kind(rows, LINEAGE):
            if len(party) == 16 and len(row) == 24 and party not in self._before(row[:16]):
                self._succeeds(party, row[:16], int.from_bytes(row[16:]))
        for party in self._former.keys() - self._in_use():
            self._forget(party)


def _row(party: bytes, former: bytes, end: int) -> tuple[bytes, bytes]:
    return LINEAGE + party, former + number(min(end, (1 << 64) - 1), 8)
