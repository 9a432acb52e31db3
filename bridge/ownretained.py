"""What this gateway published retained, so that it can seal it anew: at every epoch and bump (PROTOCOL §5).

Replicas drop retained publications of a dead epoch, since nobody who joins later could open them. Kept in clear and
in memory, the latest of each topic, bounded; the shell appends what is due to the outbox again (`Republish`).
Not here: what others published on the same topics, unless the node says so (`overtaken`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from .machine import Count, Effect, Publication, Republish

RETAINED_OWN_MAX = 10_000  # topics; the longest untouched go first and will not be sealed anew
RETAINED_OWN_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class _Kept:
    sequence: int
    scope: str
    publication: Publication


class OwnRetained:
    """Our latest retained publication of each clear topic."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    def published(self, sequence: int, scope: str, publication: Publication) -> list[Effect]:
        """Remember a retained publication of the scope with wire filter `scope`; an empty one clears its topic."""
        known = self._kept.get(publication.topic)
        if known is not None and known.sequence >= sequence:
            return []
        self._drop(publication.topic)
        if not publication.payload:
            return []
        self._kept[publication.topic] = _Kept(sequence, scope, publication)
        self._bytes += len(publication.payload)
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
            self._bytes -= len(known.publication.payload)

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
