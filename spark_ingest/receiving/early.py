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

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from bridge.contract import CHAR_BYTES, EarlyPolicy, EarlyRoom
from spark_ingest.receiving.sealings import Ack

EARLY_S = 10.0
EARLY_PIECES = 2048  # of the 4,096 that a replica may have under way
EARLY_BYTES = 64 << 20  # of one replica's: content, properties and topics


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
        """The bytes of the piece. Its topic and properties are unverified and may be long."""
        texts = (self.topic, *(text for pair in self.properties for text in pair))
        return len(self.payload) + CHAR_BYTES * sum(map(len, texts))


def early_pieces() -> EarlyRoom[object, EarlyPiece]:
    """Returns a room of early pieces, in which each replica has a part of its own."""
    policy = EarlyPolicy(inf, 0, own_bytes=EARLY_BYTES, own_count=EARLY_PIECES, waits_s=EARLY_S)
    return EarlyRoom(policy)


def keep_piece(room: EarlyRoom[object, EarlyPiece], piece: EarlyPiece) -> bool:
    """Keeps a piece; returns False if its replica's part is full."""
    return room.keep_value(object(), piece.replica.encode(), piece, piece.size, piece.since) is not None
