"""Dealing of pieces to workers, and the acknowledgements owed to replicas.

All pieces of a publication meet in a single worker, chosen by the publication's number as for shards. So each
publication is a single row, and rows of 4,096 consecutive numbers of a publisher keep their order. A data key is for
publications of all workers: it goes to each of them, and its piece is acknowledged when the last one has it and the
publication in that piece is durable.

Pure. Not here: processes and sockets (`receiver.workers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from bridge.wire import KEYS_TOPIC, carries_key_alone
from gateway.overlay import Publish
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, SignedHeader, from_property
from keys.errors import KeysError
from spark_ingest.receiving.sealings import Ack
from spark_ingest.spool import Shard

PENDING_MAX = 65_536
"""Pieces that a worker has not answered for. Receive Maximum keeps honest replicas far below; beyond the bound a piece
is
left unacknowledged, and comes again after the next reconnect.
"""

Piece: TypeAlias = tuple[int, str, bytes, tuple[tuple[str, str], ...]]
"""(ticket, wire topic, payload, user properties) of a PUBLISH; the ticket comes back when it may be acknowledged."""


class Dealt(NamedTuple):
    """Pieces of a replica, for the worker's session with this number."""

    session: int
    replica: str
    pieces: list[Piece]


@dataclass(slots=True)
class _Hand:
    """A worker. `session`: 0 while it has none."""

    session: int = 0
    pending: dict[int, tuple[str, Piece]] = field(default_factory=dict)


class Dealer:
    """A dealer: `deal` incoming pieces, `begun` and `take_done` as workers report; the results of `take_done` are to be
    acknowledged.
    """

    def __init__(self, workers: int) -> None:
        self._shards = [Shard(number, workers) for number in range(1, workers + 1)]
        self._hands = [_Hand() for _ in range(workers)]
        self._owed: dict[int, tuple[Ack, Publish, int]] = {}  # by ticket: and how many workers have not answered
        self._ticket = 0
        self.overflowed = 0
        """Pieces beyond PENDING_MAX."""

    def deal(self, replica: str, publishes: Sequence[Publish], sender: Ack) -> list[tuple[int, Dealt]]:
        """Returns the pieces for each worker now; a worker without session gets its pieces when one begins.

        `sender`: comes back with each message that may be acknowledged.
        """
        dealt: list[list[Piece]] = [[] for _ in self._hands]
        for publish in publishes:
            user = publish.properties.user
            told = dict(user)
            owner = self._owner(told.get(PROPERTY_HEADER, ""))
            takers = range(len(self._hands)) if PROPERTY_KEY in told else (owner,)
            if any(len(self._hands[taker].pending) >= PENDING_MAX for taker in takers):
                self.overflowed += 1
                continue
            self._ticket += 1
            self._owed[self._ticket] = (sender, publish, len(takers))
            for taker in takers:
                piece = (self._ticket, publish.topic, publish.payload, user)
                if taker != owner and not carries_key_alone(publish.topic):
                    piece = (self._ticket, KEYS_TOPIC, b"", _key_of(user))
                self._hands[taker].pending[self._ticket] = (replica, piece)
                dealt[taker].append(piece)
        sessions = [hand.session for hand in self._hands]
        return [
            (taker, Dealt(sessions[taker], replica, pieces))
            for taker, pieces in enumerate(dealt)
            if pieces and sessions[taker]
        ]

    def begun(self, worker: int, session: int) -> list[Dealt]:
        """Returns all pieces the worker has not answered for, in the order of their arrival."""
        hand = self._hands[worker]
        hand.session = session
        again: list[Dealt] = []
        for replica, piece in hand.pending.values():
            if not again or again[-1].replica != replica:
                again.append(Dealt(session, replica, []))
            again[-1].pieces.append(piece)
        return again

    def note_worker_end(self, worker: int) -> None:
        """Notes the end of a worker's process."""
        self._hands[worker].session = 0

    def take_done(self, worker: int, tickets: Iterable[int]) -> list[tuple[Ack, Publish]]:
        """Notes the answers of a worker; returns the messages that may be acknowledged now, with their senders."""
        pending, owed = self._hands[worker].pending, []
        for ticket in tickets:
            if pending.pop(ticket, None) is None:
                continue  # of the session before
            sender, publish, left = self._owed[ticket]
            if left > 1:
                self._owed[ticket] = (sender, publish, left - 1)
            else:
                del self._owed[ticket]
                owed.append((sender, publish))
        return owed

    def _owner(self, told: str) -> int:
        try:
            header = SignedHeader.decode(from_property(told)).header
        except KeysError:
            return 0  # somebody has to refuse it
        return next(n for n, each in enumerate(self._shards) if each.owns(header.sequence))


def _key_of(user: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in user if pair[0] in (PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS))
