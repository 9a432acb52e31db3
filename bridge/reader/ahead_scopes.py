"""Publications of a scope that is to come here: kept until we adopt the version of the overlay that lists it.

Replicas may know of a scope's new tokens before us: so is all that they keep for a gateway that was away when the owner
signed. They send it, since we want the scope, and are not to blame. A number beyond all that we know is of a scope to
come, since none is used again. The header is verified; the wire waits as it came, on disk too, and is taken up when we
adopt. Then it is judged as if it came now, by the next process too: until then nobody looked at age, rights and
vouchers. Bounded and fair: of one header a replica has one wire here, whose content fits; what it brings besides is
charged. Of the publisher with most of it at one replica the oldest goes. Not here: replicas, which refuse it, so that
its publisher offers it again.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

from bridge.contract import Count, Effect, FairBytes, Received, claim_of, wire_bytes
from bridge.reader.intake import misfit
from bridge.reader.kept import AHEAD, KeptReader, as_read, wire_row
from bridge.wire import PROPERTY_PART, Admission, carries_key_alone, read, refused
from keys.envelope import PROPERTY_HEADER, MessageHeader
from keys.errors import KeysError
from keys.frames import number

AHEAD_BYTES = 16 << 20  # of content, properties and overhead
AHEAD_OVERHEAD_BYTES = 2048  # what a header and the tables cost: bounds the number too


class _Kept(NamedTuple):
    """A wire, its header, and how many pieces of the content it brings."""

    event: Received
    header: MessageHeader
    pieces: int


class AheadScopes:
    """Of one reader. `kept`: where rows for a next process go."""

    def __init__(self, admission: Admission, kept: KeptReader) -> None:
        self._admission, self._rows = admission, kept
        self._kept: FairBytes[bytes, _Kept] = FairBytes(AHEAD_BYTES, AHEAD_OVERHEAD_BYTES)  # by row

    def instead(self, event: Received, error: KeysError, now: float) -> list[Effect]:
        """What comes of a wire that was refused with this error: it is kept, if its right may be to come. A repetition,
        and what no version would take, is refused."""
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
        self._rows.put(row, wire_row(event.peer, wire, now))
        kept = _Kept(replace(event, wire=wire), header, len(pieces))
        gone = self._kept.put(row, header.publisher + event.peer.encode(), kept, wire_bytes(wire))
        for lost, _ in gone:
            self._rows.drop(lost)
        counted: list[Effect] = [Count("publications_ahead")]
        return counted + ([Count("publications_ahead_dropped", len(gone))] if gone else [])

    def take(self) -> list[Received]:
        """All of it, in the order in which it came; nothing is kept."""
        kept, self._kept = self._kept, FairBytes(AHEAD_BYTES, AHEAD_OVERHEAD_BYTES)
        for row, _ in kept.items():
            self._rows.drop(row)
        return [replace(each.event, acknowledged=True) for _, each in kept.items()]
