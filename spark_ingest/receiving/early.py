"""Pieces that are refused for want of a right: the version of the overlay that gives it may be on its way.

Replicas adopt a version a little before or after us, and what they pass on by it looks like a stranger's here. Nobody
sends it again once it is acknowledged. So it stays unacknowledged for a moment, is looked at again with the next
version, and is refused after that moment. Bounded: more than `EARLY_PIECES` of a replica are refused at once, so that
its window has room for the version. Not here: gateways, which ask who is ahead (`bridge.membership.early_wires`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from spark_ingest.receiving.sealings import Ack

EARLY_S = 10.0
EARLY_PIECES = 256  # of the 4,096 that a replica may have under way


class EarlyPiece(NamedTuple):
    """A piece as it came, and when that was."""

    replica: str
    topic: str
    payload: bytes
    properties: Sequence[tuple[str, str]]
    ack: Ack
    since: float


class EarlyPieces:
    """Of all replicas."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[EarlyPiece]] = {}

    def keep(self, piece: EarlyPiece) -> bool:
        """Whether there is room for it."""
        kept = self._kept.setdefault(piece.replica, deque())
        if len(kept) >= EARLY_PIECES:
            return False
        kept.append(piece)
        return True

    def take(self) -> list[EarlyPiece]:
        """All, each replica's in order."""
        kept, self._kept = self._kept, {}
        return [piece for pieces in kept.values() for piece in pieces]

    def due(self, now: float) -> list[EarlyPiece]:
        """What has waited for long enough, also if the clock was set back."""
        found = []
        for pieces in self._kept.values():
            while pieces and not 0 <= now - pieces[0].since < EARLY_S:
                found.append(pieces.popleft())
        return found

    @property
    def next_deadline(self) -> float | None:
        return min((pieces[0].since + EARLY_S for pieces in self._kept.values() if pieces), default=None)
