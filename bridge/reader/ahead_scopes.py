"""Publications of a scope that is to come here: kept until we adopt the version of the overlay that lists it.

Replicas may know of a scope's new tokens before us: so is all that they keep for a gateway that was away when the owner
signed. They send it, since we want the scope, and are not to blame. A number beyond all that we know is of a scope to
come, since none is used again. The header is verified; the wire waits as it came, on disk too, and is taken up when we
adopt. Then it is judged as if it came now, by the next process too: until then nobody looked at age, rights and
vouchers. Bounded and fair: of the publisher with most of it at one replica the oldest goes. Not here: replicas, which
refuse it, so that its publisher offers it again.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from bridge.contract import Count, Effect, FairBytes, Received, claim_of
from bridge.reader.kept import AHEAD, KeptReader, as_read, wire_row
from bridge.wire import PROPERTY_PART, Admission, carries_key_alone
from keys.envelope import PROPERTY_HEADER
from keys.errors import KeysError
from keys.frames import number

AHEAD_BYTES = 16 << 20  # of content, properties and overhead
AHEAD_OVERHEAD_BYTES = 2048  # what a header and the tables cost: bounds the number too
CHAR_BYTES = 4  # of a text's character at most


class AheadScopes:
    """Of one reader. `kept`: where rows for a next process go."""

    def __init__(self, admission: Admission, kept: KeptReader) -> None:
        self._admission, self._rows = admission, kept
        self._kept: FairBytes[bytes, Received] = FairBytes(AHEAD_BYTES, AHEAD_OVERHEAD_BYTES)  # by row

    def keep(self, event: Received, now: float) -> list[Effect]:
        """What comes of a wire that was refused: it is kept, and counted; nothing, if it is of no scope to come."""
        told, topic = dict(event.wire.properties), event.wire.topic
        header = told.get(PROPERTY_HEADER)
        if header is None or carries_key_alone(topic):
            return []
        claim = claim_of(header)
        of = "\0".join((event.peer, topic, header, told.get(PROPERTY_PART, "")))
        row = AHEAD + claim.publisher + number(claim.sequence, 8) + hashlib.sha256(of.encode()).digest()[:16]
        if self._kept.get(row) is not None:
            return [Count("duplicates_dropped")]
        try:
            if not self._admission.is_to_come(header, topic):
                return []
        except KeysError:  # it is refused for what was wrong first
            return []
        size = len(event.wire.payload) + CHAR_BYTES * sum(len(text) for pair in event.wire.properties for text in pair)
        self._rows.put(row, wire_row(event.peer, as_read(event.wire), now))
        gone = self._kept.put(row, claim.publisher + event.peer.encode(), event, size)
        for lost, _ in gone:
            self._rows.drop(lost)
        counted: list[Effect] = [Count("publications_ahead")]
        return counted + ([Count("publications_ahead_dropped", len(gone))] if gone else [])

    def take(self) -> list[Received]:
        """All of it, in the order in which it came; nothing is kept."""
        kept, self._kept = self._kept, FairBytes(AHEAD_BYTES, AHEAD_OVERHEAD_BYTES)
        for row, _ in kept.items():
            self._rows.drop(row)
        return [replace(event, acknowledged=True) for _, event in kept.items()]
