"""Publications of a future tree of regions, kept until that tree is known here too.

Members adopt a version of the overlay a little earlier or later. A publication sealed for a future tree, by a
publisher ahead of us, has no way here yet; nobody is at fault. Its header was verified; the wire waits here
unchanged, and is handled again when our trees change. Bounded and fair: the publisher with the most bytes at one
neighbour loses its oldest, so a publisher with trees that never come, or a neighbour that alters wires, loses its own
entries. Not here: keys, which wait elsewhere (`wire.early_keys`), the caller (`forwarder`).
"""

from __future__ import annotations

import hashlib

from bridge.contract import Count, Effect, FairBytes, Received, wire_bytes
from bridge.wire import PROPERTY_PART
from keys.envelope import PROPERTY_HEADER

AHEAD_BYTES = 16 << 20  # of content, properties and overhead
AHEAD_OVERHEAD_BYTES = 2048  # of a header and the table: bounds the number too


class AheadPublications:
    """Waiting wires, each once a neighbour."""

    def __init__(self) -> None:
        self._kept: FairBytes[bytes, Received] = FairBytes(AHEAD_BYTES, AHEAD_OVERHEAD_BYTES)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, event: Received, publisher: bytes) -> list[Effect]:
        """Keeps a wire. Returns counts of it and of evicted ones. `publisher`: party id, whose header was verified."""
        told = dict(event.wire.properties)  # properties beside the header are unsigned
        parts = event.peer, told[PROPERTY_HEADER], told.get(PROPERTY_PART, "")
        name = hashlib.sha256("\0".join(parts).encode()).digest()
        counted: list[Effect] = [Count("publications_ahead")]
        if self._kept.get(name) is None:
            gone = self._kept.put(name, publisher + event.peer.encode(), event, wire_bytes(event.wire))
            counted += [Count("publications_ahead_dropped", len(gone))] if gone else []
        return counted

    def take(self) -> list[Received]:
        """Returns all waiting wires, in the order of arrival, and forgets them."""
        kept, self._kept = self._kept, FairBytes(AHEAD_BYTES, AHEAD_OVERHEAD_BYTES)
        return [event for _, event in kept.items()]
