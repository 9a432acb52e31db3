"""Publications and keys that came before the version of the overlay that gives their publisher its key or its right.

Members adopt a version a little earlier or later. What a publisher that is ahead of us signed with its next key, or
under a right that is to come, looks like a stranger's here. A neighbour that said that it has a newer version, or that
has not said yet which it has, may have taken it honestly: it is judged when we have that version too, or when the
neighbour says that it has none. Nobody offers it again.

Only of replicas: a publisher hears of a refusal, and offers it again. A liar that says that it is ahead delays by that
what is said of its own wires, and pays for each as for one that is refused. Bounded: of the neighbour with most of it
the oldest goes, and few are judged at once. Nothing was verified, so it is the neighbour that counts, not whom a wire
names. A reader does not acknowledge what waits, so that it comes again if the process is killed; of each neighbour as
many as `withheld_max`, for the version to come through behind them. Not here: who is ahead (`adopting`), trees that are
to come (`bridge.replica.ahead_publications`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bridge.contract import CHAR_BYTES, Blame, Count, Effect, FairBytes, Received, Take, Wire, Withhold, wire_bytes
from bridge.wire import CONTROL_ROOT, carries_key_alone
from keys.errors import NotAuthorised

EARLY_BYTES = 16 << 20  # of content, properties and overhead
EARLY_OVERHEAD_BYTES = 2048  # what the table costs: bounds the number too
JUDGED_AT_ONCE = 256  # of those that waited; each may cost a verification


@dataclass(slots=True, eq=False)
class Early:
    """What waits. `number`: under which its acknowledgement is withheld; 0 if it is not."""

    name: bytes
    event: Received
    number: int


class EarlyWires:
    """Wires of neighbours that may be ahead, as they came. `withheld_max`: of a neighbour's window may be withheld; 0
    where no shell withholds."""

    def __init__(self) -> None:
        self.withheld_max = 0
        self._kept: FairBytes[bytes, Early] = FairBytes(EARLY_BYTES, EARLY_OVERHEAD_BYTES)
        self._due: dict[bytes, None] = {}  # those of them that are to be judged
        self._due_at: float | None = None
        self._links: Counter[str] = Counter()  # by neighbour: how many are withheld
        self._last = 0  # number; negative, since the reader's overflow counts upwards
        self._taken: list[int] = []
        self._instead: dict[int, int] = {}  # by number of the overflow: under which ours it is withheld

    def __len__(self) -> int:
        return len(self._kept)

    def again(self, event: Received) -> list[Effect]:
        """What a wire comes to that waits already; nothing, if it does not. On another connection its former copy is
        gone, on the same one that is acknowledged."""
        early = self._kept.get(_name(event)) if len(self._kept) and _carries(event.wire) else None
        if early is None:
            return []
        self._release(early)
        early.number = self._number(event.peer)
        return [Count("publications_ahead"), *_withhold(early.number)]

    def instead(
        self, event: Received, effects: list[Effect], *, keeps: bool, before: Early | None = None
    ) -> list[Effect]:
        """What a wire of a neighbour that may be ahead came to, without the blame for a right that is lacking here.
        `keeps`: it waits, instead of being refused. `before`: as which it waited until now."""
        at = next((i for i, e in enumerate(effects) if isinstance(e, Count) and _is_of_rights(e)), None)
        if at is None or not _carries(event.wire):
            return effects
        rest = [e for e in effects[at + 1 :] if not (isinstance(e, Blame) and e.member == event.peer)]
        kept = self._keep(event, before) if keeps else effects[at : at + 1]
        return [*effects[:at], *kept, *rest]

    def _keep(self, event: Received, before: Early | None) -> list[Effect]:
        early = before or Early(_name(event), event, self._number(event.peer))
        size = wire_bytes(event.wire) + CHAR_BYTES * len(event.wire.topic)  # nobody verified that it is one
        withheld = [] if before else _withhold(early.number)
        gone = self._kept.put(early.name, event.peer.encode(), early, size)
        for name, lost in gone:
            self._due.pop(name, None)
            self._release(lost)
        dropped: list[Effect] = [Count("publications_ahead_dropped", len(gone))] if gone else []
        return [Count("publications_ahead"), *withheld, *dropped]

    def release(self, peer: str | None, now: float) -> None:
        """What came of one neighbour, or of all, is to be judged."""
        self._due.update((name, None) for name, early in self._kept.items() if peer in (None, early.event.peer))
        self._due_at = now if self._due else None

    def due(self) -> list[Early]:
        """What is to be judged now, in the order in which it came. Each is to be `judged`."""
        taken = [self._kept.pop(name) for name in list(self._due)[:JUDGED_AT_ONCE]]
        found = [early for early in taken if early is not None]
        for early in found:
            del self._due[early.name]
        self._due_at = self._due_at if self._due else None
        return found

    def judged(self, early: Early, effects: Sequence[Effect]) -> list[Effect]:
        """These are the effects of it. If it is withheld for want of room now, that is what it was already."""
        number = next((effect.number for effect in effects if isinstance(effect, Withhold)), 0)
        if self._kept.get(early.name) is early:
            return list(effects)
        if number and early.number:
            self._instead[number] = early.number
            self._links[early.event.peer] -= 1
        else:
            self._release(early)
        return [effect for effect in effects if not isinstance(effect, Withhold)]

    def acknowledged(self, effects: Iterable[Effect]) -> list[Effect]:
        """What a reader says at the end of an event, with what may be acknowledged of ours."""
        told = [self._ours(effect) if isinstance(effect, Take) else effect for effect in effects]
        if self._taken:
            told.append(Take(tuple(self._taken)))
            self._taken.clear()
        return told

    def _ours(self, take: Take) -> Take:
        return Take(tuple(self._instead.pop(number, number) for number in take.numbers))

    @property
    def next_deadline(self) -> float | None:
        """When something is to be judged."""
        return self._due_at

    def _number(self, peer: str) -> int:
        if self._links[peer] >= self.withheld_max:
            return 0
        self._links[peer] += 1
        self._last -= 1
        return self._last

    def _release(self, early: Early) -> None:
        """It may be acknowledged, if it is not."""
        if early.number:
            self._links[early.event.peer] -= 1
            self._taken.append(early.number)
            early.number = 0


def _name(event: Received) -> bytes:
    wire = event.wire
    told = [text for pair in wire.properties for text in pair]
    return hashlib.sha256("\0".join((event.peer, wire.topic, *told)).encode() + b"\0" + wire.payload).digest()


def _withhold(number: int) -> list[Effect]:
    return [Withhold(number)] if number else []


def _is_of_rights(count: Count) -> bool:
    return count.name == "refused" and count.label == NotAuthorised.__name__


def _carries(wire: Wire) -> bool:
    """Whether it is a publication or a key, which go on from here."""
    return carries_key_alone(wire.topic) or not wire.topic.startswith(f"{CONTROL_ROOT}/")
