"""Under which of a member's keys a number was given: what the next key signs anew is the same publication.

Numbers are a publisher's, and publishers are named by their signing keys (docs/protocol.md §2.1). After a rotation a
gateway seals anew under its next key what it numbered before: after a restart all that its outbox holds. A number
below 1,024 times the former key's end is of the former key's *lineage*, whichever of the two signs it; so what was
delivered is not delivered again, and the chain of a scope goes on. From there on numbers are the next key's own,
which nobody who has the former one can use up: a start whose clock has passed that end gives such numbers only
(docs/protocol.md §2.6). All readers decide alike, by what the owner signed. The owner lists a former key no longer
than it counts, so it is remembered here, on disk too. Without the former key's word (a lost key, replaced) there is
no lineage. Not here: what was seen.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.document import Overlay, is_retained_topic, read_wire_topic
from bridge.reader.kept import LINEAGE, KeptReader, Name, Rows, of_kind
from bridge.reader.streams import Held, Stream, StreamId, scope_stream
from keys.frames import number

NUMBERS_PER_MS = 1024  # those of a start begin at so many times its milliseconds
FORMER_MAX = 8
"""Rotations of one member that are remembered; older numbers count as given under the last of these keys."""


class Lineages:
    """See the module. `kept`: where rows for a next process go; None: nobody takes them."""

    def __init__(self, overlay: Overlay, kept: KeptReader | None = None) -> None:
        self._kept = kept
        self._former: dict[bytes, tuple[bytes, int]] = {}  # party -> the one before it, and the end of its numbers
        self._next: dict[bytes, list[bytes]] = {}  # the same backwards
        self.adopt(overlay)

    def adopt(self, overlay: Overlay) -> None:
        """Another version, in which members may have other keys."""
        self._overlay = overlay
        for member in overlay.members.values():
            if member.before is not None:
                former = member.before.party_id, member.before.not_after_ms * NUMBERS_PER_MS
                self._learn(member.certificate.party_id, *former)
        for party in self._former.keys() - self._in_use():
            self._forget(party)

    def parties(self, publisher: bytes, number: int) -> list[bytes]:
        """The publisher, and those whose key it succeeded to since that number was given; the first of them last."""
        found = [publisher]
        while (former := self._former.get(found[-1])) is not None and number < former[1]:
            found.append(former[0])
        return found

    def author(self, publisher: bytes, number: int) -> bytes:
        """Under which party a number was given that this publisher signed."""
        return self.parties(publisher, number)[-1] if publisher in self._former else publisher

    def streams_of(self, name: Name) -> list[StreamId]:
        """Where a publication of this name waits for its turn, if it does."""
        publisher, topic, number = name
        scope = self.scope_stream(publisher, number, topic)
        return [scope, (scope[0], topic)] if is_retained_topic(topic) else [scope]

    def scope_stream(self, publisher: bytes, number: int, topic: str) -> StreamId:
        """Where it is known what was seen of the author of this number in the scope that a wire topic names. Raises
        BadFrame for what is no wire topic."""
        return scope_stream(self.author(publisher, number), self.stream_of(topic))

    def stream_of(self, topic: str) -> int:
        """The first number of the scope that a wire topic names. Raises BadFrame for what is no wire topic."""
        return self._overlay.stream_of(read_wire_topic(topic).scope)

    def is_to_come(self, topic: str) -> bool:
        """Whether a wire topic names a scope of a later version: which stream it goes on is not known yet. Raises
        BadFrame for what is no wire topic."""
        return self._overlay.is_to_come(read_wire_topic(topic).scope)

    def before(self, held: Held) -> list[tuple[bytes, int]]:
        """Publisher and number of what precedes it, which its publisher may have signed with a former key."""
        header = held.admitted.header
        return [(party, header.previous) for party in self.parties(header.publisher, header.previous)]

    def stream_before(
        self, held: Held, own: Stream, streams: Callable[[StreamId], Stream | None], generation: int
    ) -> Stream | None:
        """Where what precedes it in its chain was delivered or lacks, as far as something of the chain was delivered
        under this subscription; None if nothing was. `own`: the stream in which it waits. A next key's own numbers go
        on where those of the former one end."""
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
        """Of those who succeeded to its author, in the same scope: what waits there may have waited for it."""
        return [(party, stream_id[1]) for party in self._next.get(stream_id[0], ())]

    def is_overtaken(self, stream_id: StreamId, streams: Callable[[StreamId], Stream | None]) -> bool:
        """Whether something of theirs was delivered."""
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
        """Parties whose predecessors matter: those that are members' keys, and the ones before them."""
        return {party for present in self._overlay.by_party for party in self._before(present)[:FORMER_MAX]}

    def _forget(self, party: bytes) -> None:
        self._unlink(party)
        if self._kept is not None:
            self._kept.drop(LINEAGE + party)

    # ------------------------------------------------------------------------------------------- over restarts

    def rows(self) -> list[tuple[bytes, bytes]]:
        """What a next process is to know, where no `kept` takes it."""
        return [_row(party, *known) for party, known in self._former.items()]

    def restore(self, rows: Rows) -> None:
        """What a former process knew, among other rows. One that is damaged is left out."""
        for party, row in of_kind(rows, LINEAGE):
            if len(party) == 16 and len(row) == 24 and party not in self._before(row[:16]):
                self._succeeds(party, row[:16], int.from_bytes(row[16:]))
        for party in self._former.keys() - self._in_use():
            self._forget(party)


def _row(party: bytes, former: bytes, end: int) -> tuple[bytes, bytes]:
    return LINEAGE + party, former + number(min(end, (1 << 64) - 1), 8)
