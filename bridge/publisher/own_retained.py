"""What this gateway published retained: to be sealed anew at every epoch and bump, and told again
(docs/protocol.md §5.3).

Replicas drop retained publications of a dead epoch, since nobody who joins later could open them; the shell appends
what is due to the outbox again (`Republish`). A replica that restarted has none left: it gets them as they were sealed.
Kept in clear, sealed, and in memory, the latest of each topic, bounded.
Not here: what others published on the same topics, unless the node says so (`overtaken`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from bridge.contract import Allowance, Count, Effect, Publication, Republish, Wire
from bridge.publisher.data_keys import LiveKey
from bridge.publisher.sealing import Entry
from keys.envelope import KeyName

RETAINED_OWN_MAX = 10_000  # topics; the longest untouched go first and will not be sealed anew
RETAINED_OWN_BYTES_MAX = 64 << 20  # clear and sealed
RETELL_BURST = 8  # times that a replica whose link comes up is told everything at once ...
RETELL_EVERY_S = 60.0  # ... and then once a minute


@dataclass(slots=True)
class KeptRetained:
    """One topic's publication in the scope with wire filter `scope`, and how it was sealed last, under `name`."""

    sequence: int
    scope: str
    publication: Publication
    wire: Wire | None = None
    name: KeyName | None = None
    key: LiveKey | None = None

    @property
    def size(self) -> int:
        return len(self.publication.payload) + (len(self.wire.payload) if self.wire else 0)


class OwnRetained:
    """Our latest retained publication of each clear topic."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptRetained] = OrderedDict()
        self._bytes = 0
        self._retold: dict[str, Allowance] = {}  # by replica of our region

    def published(self, sequence: int, scope: str, publication: Publication) -> list[Effect]:
        """Remember a retained publication of the scope with wire filter `scope`; an empty one clears its topic."""
        known = self._kept.get(publication.topic)
        if known is not None and known.sequence >= sequence:
            return []
        self._drop(publication.topic)
        if not publication.payload:
            return []
        self._kept[publication.topic] = kept = KeptRetained(sequence, scope, publication)
        self._bytes += kept.size
        return self._shrink()

    def sealed(self, entry: Entry) -> list[Effect]:
        """An entry of the outbox that is retained was sealed (again)."""
        kept = self._kept.get(entry.publication.topic)
        if kept is None or kept.sequence != entry.sequence:
            return []
        self._bytes -= kept.size
        kept.wire, kept.name, kept.key = entry.wire, entry.name, entry.key
        self._bytes += kept.size
        return self._shrink()

    def to_retell(self, peer: str, now: float) -> list[KeptRetained]:
        """All that is kept, in order of sequence, for a replica that may have lost it; none if it asks too often."""
        if not self._kept or not self._retold.setdefault(peer, Allowance(RETELL_BURST, RETELL_EVERY_S, now)).take(now):
            return []
        return sorted(self._kept.values(), key=lambda kept: kept.sequence)

    def _shrink(self) -> list[Effect]:
        gone = 0
        while len(self._kept) > RETAINED_OWN_MAX or self._bytes > RETAINED_OWN_BYTES_MAX:
            self._drop(next(iter(self._kept)))
            gone += 1
        return [Count("retained_own_dropped", gone)] if gone else []

    def overtaken(self, topic: str, time_ms: int) -> None:
        """Somebody else published at `time_ms`: if ours is older, it would bring back an old value."""
        known = self._kept.get(topic)
        if known is not None and known.publication.time_ms <= time_ms:
            self._drop(topic)

    def _drop(self, topic: str) -> None:
        known = self._kept.pop(topic, None)
        if known is not None:
            self._bytes -= known.size

    def due(self, scopes: Collection[str], unsent: Collection[int], now: float) -> list[Effect]:
        """What must be published again now that these scopes seal under other keys.

        `unsent`: sequences that are still in the outbox; those are sealed under the new key anyway.
        """
        due = []
        for kept in list(self._kept.values()):
            publication = kept.publication
            if publication.expiry_s is not None and publication.time_ms + publication.expiry_s * 1000 < now * 1000:
                self._drop(publication.topic)
            elif kept.scope in scopes and kept.sequence not in unsent:
                due.append(publication)
        return [Republish(tuple(due)), Count("retained_resealed", len(due))] if due else []
