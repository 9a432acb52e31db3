"""Publications and keys that came before the version of the overlay that gives their publisher its key or its right.

Members adopt a version a little earlier or later. What a publisher that is ahead of us signed with its next key, or
under a right that is to come, looks like a stranger's here. A neighbour that said that it has a newer version, or that
has not said yet which it has, may have taken it honestly: it is judged when we have that version too, or when the
neighbour says that it has none. Nobody offers it again.

Only of replicas: a publisher hears of a refusal, and offers it again. A liar that says that it is ahead delays by that
what is said of its own wires. Bounded: of the neighbour with most of it the oldest goes. Nothing was verified, so it is
the neighbour that counts, not whom a wire names. Not here: who is ahead (`adopting`), trees that are to come
(`bridge.replica.ahead_publications`).
"""

from __future__ import annotations

import hashlib

from bridge.contract import Blame, Count, Effect, FairBytes, Received, Wire
from bridge.wire import CONTROL_ROOT, carries_key_alone

EARLY_BYTES = 16 << 20  # of content, properties and overhead
EARLY_OVERHEAD_BYTES = 2048  # what the table costs: bounds the number too
_CHAR_BYTES = 4  # of a text's character at most
_OF_RIGHTS = "NotAuthorised"


class EarlyWires:
    """Wires of neighbours that may be ahead, as they came."""

    def __init__(self) -> None:
        self._kept: FairBytes[bytes, Received] = FairBytes(EARLY_BYTES, EARLY_OVERHEAD_BYTES)

    def __len__(self) -> int:
        return len(self._kept)

    def instead(self, event: Received, effects: list[Effect], *, keeps: bool) -> list[Effect]:
        """What a wire of a neighbour that may be ahead came to, without the blame for a right that is lacking here.
        `keeps`: it waits, instead of being refused."""
        at = next((i for i, e in enumerate(effects) if isinstance(e, Count) and _is_of_rights(e)), None)
        if at is None or not _carries(event.wire):
            return effects
        rest = [e for e in effects[at + 1 :] if not (isinstance(e, Blame) and e.member == event.peer)]
        return [*effects[:at], *(self._keep(event) if keeps else effects[at : at + 1]), *rest]

    def _keep(self, event: Received) -> list[Effect]:
        wire = event.wire
        told = [text for pair in wire.properties for text in pair]
        name = hashlib.sha256("\0".join((event.peer, wire.topic, *told)).encode() + b"\0" + wire.payload).digest()
        if self._kept.get(name) is not None:
            return [Count("publications_ahead")]
        size = len(wire.payload) + _CHAR_BYTES * (len(wire.topic) + sum(map(len, told)))
        gone = self._kept.put(name, event.peer.encode(), event, size)
        dropped: list[Effect] = [Count("publications_ahead_dropped", len(gone))] if gone else []
        return [Count("publications_ahead"), *dropped]

    def take(self, peer: str | None = None) -> list[Received]:
        """What came of one neighbour, or of all, in the order in which it came; it is not kept any more."""
        taken = [(name, event) for name, event in self._kept.items() if peer in (None, event.peer)]
        for name, _ in taken:
            self._kept.pop(name)
        return [event for _, event in taken]


def _is_of_rights(count: Count) -> bool:
    return count.name == "refused" and count.label == _OF_RIGHTS


def _carries(wire: Wire) -> bool:
    """Whether it is a publication or a key, which go on from here."""
    return carries_key_alone(wire.topic) or not wire.topic.startswith(f"{CONTROL_ROOT}/")
