"""Store of publications of future scopes: kept until this reader adopts the version of the overlay listing the scope.

A replica may know a scope's new tokens before this reader does. A replica may also have kept publications for a
gateway that was away while the owner signed. Such a replica sends them because the reader wants the scope, and is not
to blame. Scope numbers are never used again, so a number above all known ones belongs to a future scope.

The header is verified. The wire is kept as it came, on disk too, and judged at adoption as if it had just arrived,
also by the next process: until then age, rights and vouchers are unchecked. Memory is bounded and fair: each replica
may keep a single wire for a header, and only if its content fits; anything more is charged to the replica. When the
store is full, the pair of publisher and replica with the most bytes loses its oldest wire. Replicas do not use this
module: they refuse such a wire, and its publisher offers the wire again.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

from bridge.contract import PUBLICATIONS, EarlyRoom, Effect, Received, claim_of, kept_early, wire_bytes
from bridge.reader.intake import misfit
from bridge.reader.kept import AHEAD, KeptReader, as_read, wire_row
from bridge.wire import PROPERTY_PART, Admission, carries_key_alone, read, refused
from keys.envelope import PROPERTY_HEADER, MessageHeader
from keys.errors import KeysError
from keys.frames import number


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
        self._rows.put(row, wire_row(event.peer, wire, now))
        kept = _Kept(replace(event, wire=wire), header, len(pieces))
        gone = self._kept.keep(row, header.publisher + event.peer.encode(), kept, wire_bytes(wire)) or ()
        for lost, _ in gone:
            self._rows.drop(lost)
        return kept_early(len(gone))

    def take(self) -> list[Received]:
        """Removes all kept wires and returns them in order of arrival."""
        for row, _ in self._kept.items():
            self._rows.drop(row)
        return [replace(each.event, acknowledged=True) for each in self._kept.take()]
