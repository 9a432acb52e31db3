"""Publications without room to wait for their turn at a gateway: they stay in hand, unacknowledged (docs/protocol.md
§5.2).

MQTT 5 then holds back the sender, which sends the publication again if this process is killed. A publisher may leave at
most a quarter of a link's window unacknowledged, all publishers together a half: so awaited predecessors still come
through, and no publisher mutes another. When there is room, publications enter their streams, the lowest number first.
A copy from another replica is withheld too, but held once. `waiting` decides on room; `collector` handles publications
finding no room here either.

`AheadScopes` keeps publications of future scopes until this reader adopts the version of the overlay listing the scope.
A replica may know a scope's new tokens before this reader does. A replica may also have kept publications for a gateway
that was away while the owner signed. Such a replica sends them because the reader wants the scope, and is not to blame.
Scope numbers are never used again, so a number above all known ones belongs to a future scope.

The header is verified. The wire is kept as it came, on disk too, and judged at adoption as if it had just arrived, also
by the next process: until then age, rights and vouchers are unchecked. Memory is bounded and fair: each replica may
keep a single wire for a header, and only if its content fits; anything more is charged to the replica. When the store
is full, the pair of publisher and replica with the most bytes loses its oldest wire. Replicas do not use this module:
they refuse such a wire, and its publisher offers the wire again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from bridge.contract import PUBLICATIONS, EarlyRoom, Effect, Received, Take, claim_of, kept_early, wire_bytes
from bridge.reader.intake import misfit
from bridge.reader.kept import AHEAD, KeptReader, Name, as_read, wire_row
from bridge.reader.streams import Held
from bridge.wire import PROPERTY_PART, PROPERTY_SKIP, Admission, carries_key_alone, read, refused
from keys.envelope import PROPERTY_HEADER, MessageHeader
from keys.errors import KeysError
from keys.frames import number

LINK_WINDOW = 1024  # what a replica may have sent a gateway that is not acknowledged: the gateway's Receive Maximum
HOSTED_WINDOW = 20  # of a stock broker, whatever it is offered: the least that is usual, Mosquitto's
PARTS = 4  # of a window, and of the bytes, one publisher has one
OVERFLOW_BYTES_MAX = 32 << 20  # of all that is in hand
_READ = frozenset({PROPERTY_HEADER, PROPERTY_PART, PROPERTY_SKIP})  # keys and shares were taken when it came


@dataclass(slots=True, eq=False)
class InHand:
    """A publication and the wire that completed it. `numbers` holds, by replica, the number of each withheld copy."""

    held: Held
    brought: Received
    numbers: dict[str, int]

    @property
    def size(self) -> int:
        """The size in bytes."""
        wire = self.brought.wire
        content = self.held.content
        own = 0 if content is None or content is wire.payload else len(content)
        return own + len(wire.payload) + sum(len(value) for _, value in wire.properties)


class Overflow:
    """The publications in hand at one gateway. `hosted` are the stock brokers of the region."""

    def __init__(self, hosted: Collection[str]) -> None:
        self.hosted = hosted
        self._in_hand: dict[bytes, dict[Name, InHand]] = {}  # by publisher
        self._links: dict[str, Counter[bytes]] = {}  # by replica: of whom how many copies are withheld
        self._bytes: Counter[bytes] = Counter()
        self._last = 0
        self.to_take: list[int] = []
        """The numbers of withheld copies that may be acknowledged."""

    def __len__(self) -> int:
        """Returns the number of publishers with publications in hand."""
        return len(self._in_hand)

    def get(self, name: Name) -> InHand | None:
        """Returns the publication in hand with this name."""
        return self._in_hand.get(name[0], {}).get(name)

    def put_in_hand(self, held: Held, brought: Received) -> int:
        """Keeps a publication in hand, in its latest given sealing. Returns the number under which its wire is
        withheld; 0 if there is no room here either.
        """
        before = self.get(held.name)
        read = tuple(each for each in brought.wire.properties if each[0] in _READ)  # nothing else fills memory
        entry = InHand(held, replace(brought, wire=replace(brought.wire, properties=read)), {})
        publisher = held.name[0]
        of_all = self._bytes.total() - (before.size if before else 0) + entry.size
        of_one = self._bytes[publisher] - (before.size if before else 0) + entry.size
        if of_all > OVERFLOW_BYTES_MAX or of_one > OVERFLOW_BYTES_MAX // PARTS:
            return 0
        if not self._has_window(brought.peer, publisher):
            return 0
        if before is not None:
            entry.numbers = before.numbers
            self._bytes[publisher] -= before.size
        self._in_hand.setdefault(publisher, {})[held.name] = entry
        self._bytes[publisher] += entry.size
        return self.join(entry, brought.peer)

    def join(self, entry: InHand, peer: str) -> int:
        """Takes a replica's copy of a publication in hand. Returns the number under which the copy is withheld; 0 if
        too much of the link's window is taken.

        A former copy of that replica is acknowledged; if it came on an earlier connection, it is gone.
        """
        publisher = entry.held.name[0]
        if peer in entry.numbers:
            self.to_take.append(entry.numbers[peer])
        elif not self._has_window(peer, publisher):
            return 0
        else:
            self._links.setdefault(peer, Counter())[publisher] += 1
        self._last += 1
        entry.numbers[peer] = self._last
        return self._last

    def _has_window(self, peer: str, publisher: bytes) -> bool:
        window = HOSTED_WINDOW if peer in self.hosted else LINK_WINDOW
        link = self._links.get(peer)
        return link is None or (link[publisher] < window // PARTS and link.total() < window // 2)

    def first_of(self, publisher: bytes) -> InHand | None:
        """Returns the publication of this publisher with the lowest number."""
        entries = self._in_hand.get(publisher)
        return None if entries is None else min(entries.values(), key=lambda entry: entry.held.name[2])

    def among(self, publishers: Collection[bytes]) -> list[bytes]:
        """Returns the given publishers that have publications in hand."""
        return sorted(self._in_hand.keys() & publishers)

    def pop(self, entry: InHand) -> None:
        """Removes a publication that goes on or is no longer wanted; its withheld copies may be acknowledged."""
        publisher = entry.held.name[0]
        entries = self._in_hand[publisher]
        del entries[entry.held.name]
        self._bytes[publisher] -= entry.size
        if not entries:
            del self._in_hand[publisher], self._bytes[publisher]
        for peer, taken in entry.numbers.items():
            self.to_take.append(taken)
            link = self._links[peer]
            link[publisher] -= 1
            if not link[publisher]:
                del link[publisher]
                if not link:
                    del self._links[peer]

    def taken(self) -> list[Effect]:
        """Returns the effect acknowledging withheld copies, if there are any."""
        if not self.to_take:
            return []
        taken, self.to_take = tuple(self.to_take), []
        return [Take(taken)]


class _Kept(NamedTuple):
    """A wire, its header, and the number of pieces of the content in the wire."""

    event: Received
    header: MessageHeader
    pieces: int


class AheadScopes:
    """Publications of future scopes at one reader. `kept` takes the rows for the next process."""

    def __init__(self, admission: Admission, kept: KeptReader) -> None:
        self._admission, self._rows = admission, kept
        self._kept: EarlyRoom[bytes, _Kept] = EarlyRoom(PUBLICATIONS)  # by row

    def instead(self, event: Received, error: KeysError, now: float) -> list[Effect]:
        """Returns the effects for a wire that was refused with `error`: keeps the wire if its right may still come.
        Refuses a repetition, and a wire no version of the overlay would accept.
        """
        wire = as_read(event.wire)
        told = dict(wire.properties)
        text = told.get(PROPERTY_HEADER)
        if text is None or carries_key_alone(wire.topic) or not error.may_be_late:
            return refused(event.peer, error)
        of, claim = "\0".join((event.peer, wire.topic, text)).encode(), claim_of(text)
        row = AHEAD + claim.publisher + number(claim.sequence, 8) + hashlib.sha256(of).digest()[:16]
        before = self._kept.get(row)
        try:
            header = before.header if before is not None else self._admission.to_come(text, wire.topic)
            if header is None:
                return refused(event.peer, error)
            pieces = read(header, wire.payload, told.get(PROPERTY_PART))
        except KeysError as wrong:
            return refused(event.peer, wrong)
        if pieces is None:
            return misfit(event.peer)
        if before is not None:
            if len(pieces) <= before.pieces:
                return refused(event.peer, error)
            # Announced, and now it comes: keys and shares may have come with either.
            earlier = {name: value for name, value in before.event.wire.properties if name != PROPERTY_PART}
            wire = replace(wire, properties=tuple((earlier | told).items()))
        self._rows.put_row(row, wire_row(event.peer, wire, now))
        kept = _Kept(replace(event, wire=wire), header, len(pieces))
        gone = self._kept.keep_value(row, header.publisher + event.peer.encode(), kept, wire_bytes(wire)) or ()
        for lost, _ in gone:
            self._rows.drop_row(lost)
        return kept_early(len(gone))

    def take_all(self) -> list[Received]:
        """Removes all kept wires and returns them in order of arrival."""
        for row, _ in self._kept.items():
            self._rows.drop_row(row)
        return [replace(each.event, acknowledged=True) for each in self._kept.take_all()]
