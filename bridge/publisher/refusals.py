"""Refusals by replicas, and the time of the next offer: after a second, then twice as long with each round in which
the replica took less than it refused, a minute at most.

A refusal is no acknowledgement (docs/protocol.md §5.8): the entry stays, and counts as lacking there. Before the next
offer the gateway seals old entries anew. `contract.refusing` gives reasons, `windows` has the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

AGAIN_S = 1.0
AGAIN_MAX_S = 60.0
RESEAL_AFTER_S = 1800.0
"""Seconds after which sealed bytes that too few replicas have are sealed anew: replicas refuse wires an hour old."""


@dataclass(frozen=True, slots=True)
class _Round:
    """The entries that one replica refused, and the time of the next offer. `waits`: entry -> None, in order."""

    again_at: float
    waits: dict[int, None] = field(default_factory=dict)


class Refusals:
    """The refusals at one gateway, bounded for each replica by the entries in memory."""

    def __init__(self) -> None:
        self._rounds: dict[str, _Round] = {}
        self._pauses: dict[str, float] = {}
        self._refused: dict[str, int] = {}  # how much more than it took each refused since its last round began
        self.reasons: dict[str, str] = {}
        """The last reason of each replica that has refused and taken nothing since."""

    def refused(self, peer: str, sequence: int, reason: str, now: float) -> None:
        self.reasons[peer] = reason
        if peer not in self._rounds:
            if self._refused.pop(peer, 0) <= 0:
                self._pauses.pop(peer, None)
            self._pauses[peer] = min(2 * self._pauses.get(peer, AGAIN_S / 2), AGAIN_MAX_S)
            self._rounds[peer] = _Round(now + self._pauses[peer])
        self._refused[peer] = self._refused.get(peer, 0) + 1
        self._rounds[peer].waits[sequence] = None

    def acknowledged(self, peer: str) -> None:
        """Counts an entry that a replica took. Once the replica took as many as it refused since a round began, the
        next round counts as the first: a replica that takes one in a thousand would otherwise get all the others every
        second.
        """
        self.reasons.pop(peer, None)
        if peer in self._refused:
            self._refused[peer] -= 1

    def due(self, now: float) -> Iterator[tuple[str, int]]:
        """Yields replicas and entries to offer again now."""
        for peer in [peer for peer, found in self._rounds.items() if found.again_at <= now]:
            for sequence in self._rounds.pop(peer).waits:
                yield peer, sequence

    @property
    def next_deadline(self) -> float | None:
        return min([found.again_at for found in self._rounds.values()], default=None) if self._rounds else None
