"""Pieces that are refused for want of a right: the version of the overlay giving the right may be on its way.

Replicas adopt a version a little before or after us, and pieces that they pass on by it look like a stranger's here.
An acknowledged piece never comes again. So such a piece stays unacknowledged for a moment, is looked at again with
the
next version, and is refused after that moment. All replicas bring equal pieces, and the version comes behind them on
those links. So a replica may have half of its window wait; pieces beyond that are refused at once, so that the
version
can come through. Not here: gateways, which ask who is ahead (`bridge.membership.early_wires`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from spark_ingest.receiving.sealings import Ack

EARLY_S = 10.0
EARLY_PIECES = 2048  # of the 4,096 that a replica may have under way
EARLY_BYTES = 64 << 20  # of one replica's, content and properties


class EarlyPiece(NamedTuple):
    """A received piece, and the time of its arrival."""

    replica: str
    topic: str
    payload: bytes
    properties: Sequence[tuple[str, str]]
    ack: Ack
    since: float

    @property
    def size(self) -> int:
        """The bytes of the piece."""
        return len(self.payload) + sum(len(name) + len(value) for name, value in self.properties)


class EarlyPieces:
    """The early pieces of all replicas."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[EarlyPiece]] = {}
        self._bytes: Counter[str] = Counter()  # by replica

    def keep(self, piece: EarlyPiece) -> bool:
        """Keeps a piece; returns False if there is no room."""
        kept = self._kept.setdefault(piece.replica, deque())
        if len(kept) >= EARLY_PIECES or self._bytes[piece.replica] + piece.size > EARLY_BYTES:
            return False
        kept.append(piece)
        self._bytes[piece.replica] += piece.size
        return True

    def take(self) -> list[EarlyPiece]:
        """Removes and returns all pieces, each replica's in order."""
        kept, self._kept = self._kept, {}
        self._bytes.clear()
        return [piece for pieces in kept.values() for piece in pieces]

    def due(self, now: float) -> list[EarlyPiece]:
        """Removes and returns pieces that have waited long enough, even if the clock was set back."""
        found = []
        for pieces in self._kept.values():
            while pieces and not 0 <= now - pieces[0].since < EARLY_S:
                found.append(pieces.popleft())
                self._bytes[found[-1].replica] -= found[-1].size
        return found

    @property
    def next_deadline(self) -> float | None:
        return min((pieces[0].since + EARLY_S for pieces in self._kept.values() if pieces), default=None)
