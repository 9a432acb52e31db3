"""Keys that came before the views that they were split for, as they came: kept until the overlay changes.

Views come into force at each member a little earlier or later, so a publisher may be ahead of us; that is no fault of
anybody's. The rules are those of `bridge.wire.early_keys`, which is not imported here: this package asks the gateway
only.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

AHEAD_MAX = 2_048
"""Pieces of keys over all publishers; beyond it the oldest goes."""
AHEAD_PER_PUBLISHER_MAX = 256
"""Stops a publisher that names views which never come from pushing out others'; beyond it, it pushes out its own."""


class Piece(NamedTuple):
    """Who sent it, and the properties `vmq-key` and `vmq-shares` as received."""

    replica: str
    told: str
    told_shares: str | None


class Ahead:
    """Pieces by publisher, oldest first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Piece, bytes] = OrderedDict()
        self._owned: dict[bytes, OrderedDict[Piece, None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, publisher: bytes, piece: Piece) -> None:
        """`publisher` signed the key header; that was verified."""
        if piece in self._kept:
            return
        self._kept[piece] = publisher
        owned = self._owned.setdefault(publisher, OrderedDict())
        owned[piece] = None
        if len(owned) > AHEAD_PER_PUBLISHER_MAX:
            self._drop(next(iter(owned)))
        elif len(self._kept) > AHEAD_MAX:
            self._drop(next(iter(self._kept)))

    def take(self) -> list[Piece]:
        """All of them, in the order in which they came; nothing is kept."""
        pieces = list(self._kept)
        self._kept.clear()
        self._owned.clear()
        return pieces

    def _drop(self, piece: Piece) -> None:
        publisher = self._kept.pop(piece)
        del self._owned[publisher][piece]
        if not self._owned[publisher]:
            del self._owned[publisher]
