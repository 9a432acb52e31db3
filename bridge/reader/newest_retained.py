"""Which retained publication of a topic is the newest, at a subscriber that has just joined (docs/protocol.md §5.3).

A liar may replay any retained publication that its author ever signed; honest replicas pass it on, so counting
replicas shows nothing. Hence what may be old waits `RETAINED_WAIT_S` for its betters, and of all that came the
greatest (time, publisher, sequence) is the topic's. Live publications do not wait. Publishers seal what is retained
anew at every epoch and bump; whoever has it already is not told again. Not here: replicas' own store.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TypeAlias

from bridge.contract import FairBytes, FairTable
from bridge.reader.awaiting_keys import KEPT_OVERHEAD_BYTES
from bridge.reader.kept import RETAINED, KeptReader
from bridge.reader.streams import Held
from bridge.wire import AHEAD_S
from keys.frames import Reader, number, text

RETAINED_WAIT_S = 0.5  # for replicas to send what they retain; docs/protocol.md §5.3
RETAINED_LIVE_S = 2.0  # a retained publication that was sealed longer ago may be a replay
NEWEST_MAX = 20_000  # topics whose newest retained publication is remembered; a flooder forgets its own first
WAITING_BYTES = 64 << 20  # of retained publications that wait; a flooder loses its own first

Order: TypeAlias = tuple[int, bytes, int]


def order_of(held: Held) -> Order:
    """What makes one retained publication newer than another."""
    header = held.admitted.header
    return header.time_ms, header.publisher, header.sequence


class Joining:
    """Per topic, the newest retained publication so far, and candidates that wait."""

    def __init__(self, kept: KeptReader | None = None) -> None:
        self._kept = kept if kept is not None else KeptReader()
        self._newest: FairTable[str, Order] = FairTable(NEWEST_MAX)
        # By topic: author, SHA-256 of what it sealed, and the epoch and bump of the seal.
        self._sealed: FairTable[str, tuple[str, bytes, tuple[int, int]]] = FairTable(NEWEST_MAX)
        self._waiting: FairBytes[str, Held] = FairBytes(WAITING_BYTES, KEPT_OVERHEAD_BYTES)
        self._until: OrderedDict[str, float] = OrderedDict()  # oldest first, all wait equally long

    @staticmethod
    def may_be_old(held: Held) -> bool:
        age_s = abs(held.arrived - held.admitted.header.time_ms / 1000)
        return age_s > RETAINED_LIVE_S and not Joining.is_to_come(held)

    @staticmethod
    def is_to_come(held: Held) -> bool:
        """Whether it says that it was sealed at a time that is to come. Retained, it would outrank until then what
        others publish on its topic."""
        return held.admitted.header.time_ms / 1000 > held.arrived + AHEAD_S

    def offer(self, held: Held) -> bool:
        """Let it wait with others of its topic; False if a newer one is known, so that it is a replay."""
        order = order_of(held)
        best = self._waiting.get(held.topic)
        if self.superseded(held.topic, order) or (best is not None and order <= order_of(best)):
            return False
        self._until.setdefault(held.topic, held.arrived + RETAINED_WAIT_S)
        for topic, _ in self._waiting.put(held.topic, held.admitted.header.publisher, held, held.size):
            self._until.pop(topic, None)
        return True

    def due(self, now: float) -> list[Held]:
        """Those that waited long enough and are still their topics' newest."""
        ready = []
        while self._until and next(iter(self._until.values())) <= now:
            topic, _ = self._until.popitem(last=False)
            held = self._waiting.pop(topic)
            if held is not None and not self.superseded(topic, order_of(held)):
                ready.append(held)
        return ready

    @property
    def next_deadline(self) -> float | None:
        return next(iter(self._until.values()), None)

    def superseded(self, topic: str, order: Order) -> bool:
        newest = self._newest.get(topic)
        return newest is not None and order < newest

    def delivered(self, topic: str, order: Order) -> None:
        """A retained publication is the topic's newest now."""
        gone = self._newest.put(topic, order[1], order)
        if gone is not None:
            self._kept.drop(RETAINED + gone[0].encode())
        self._kept.put(RETAINED + topic.encode(), self._row(topic, order))

    def sealed_anew(self, topic: str, author: str, clear: bytes, seal: tuple[int, int]) -> bool:
        """Whether the author's last retained publication of the topic was just this, under another epoch key."""
        digest = hashlib.sha256(clear).digest()
        known = self._sealed.get(topic)
        self._sealed.put(topic, author.encode(), (author, digest, seal))
        return known is not None and known[:2] == (author, digest) and known[2] != seal

    # ------------------------------------------------------------------------------------------- over restarts

    def _row(self, topic: str, order: Order) -> bytes:
        author, digest, (epoch, bump) = self._sealed.get(topic) or ("", bytes(32), (0, 0))
        parts = [number(order[0], 8), order[1], number(order[2], 8), text(author), digest]
        return b"".join([*parts, number(epoch, 8), number(bump, 8)])

    def restore(self, topic: str, row: bytes) -> None:
        """What a former process kept. Raises BadFrame."""
        reader = Reader(row)
        order = reader.number(8), reader.take(16), reader.number(8)
        author, digest, seal = reader.text(), reader.take(32), (reader.number(8), reader.number(8))
        reader.end()
        self._newest.put(topic, order[1], order)
        if author:
            self._sealed.put(topic, author.encode(), (author, digest, seal))

    def holds(self, topic: str, publisher: bytes, sequence: int) -> bool:
        """Whether this publication waits for its betters."""
        held = self._waiting.get(topic)
        return held is not None and (held.admitted.header.publisher, held.admitted.header.sequence) == (
            publisher,
            sequence,
        )
