"""Publications and keys that came before the version of the overlay giving their publisher its key or its right.

Members adopt a version a little earlier or later. Here, a publication signed with a publisher's next key, or under a
right to come, looks like a stranger's. A neighbour that named a newer version, or has named none yet, may have
accepted the wire honestly. The wire waits, and is judged when we have the newer version too, or when the neighbour
says that it has none: nobody offers the wire again.

Only wires of replicas wait: a publisher hears of a refusal, and offers the wire again. A liar that claims a newer
version delays the judgement of its own wires, and pays for each as for a refused wire. Bounded: the neighbour with the
most bytes loses its oldest wire, and few wires are judged at once. Nothing was verified, so room is counted by
neighbour, not by the publisher a wire names. A reader does not acknowledge waiting wires, so that they come again if
the process is killed; at most `withheld_max` for each neighbour, so that the version can come through behind them. Not
here: which neighbour is ahead (`adopting`), trees that are to come (`bridge.wire.early`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bridge.contract import (
    CHAR_BYTES,
    PUBLICATIONS,
    Blame,
    Count,
    EarlyRoom,
    Effect,
    Received,
    Take,
    Wire,
    Withhold,
    kept_early,
    wire_bytes,
)
from bridge.wire import CONTROL_ROOT, carries_key_alone
from keys.errors import NotAuthorised

JUDGED_AT_ONCE = 256  # waiting wires; each may cost a verification


@dataclass(slots=True, eq=False)
class Early:
    """A waiting wire. `number`: the number under which its acknowledgement is withheld; 0 if it is not withheld."""

    name: bytes
    event: Received
    number: int


class EarlyWires:
    """The waiting wires of neighbours that may be ahead. `withheld_max`: the acknowledgements that may be withheld
    from a neighbour; 0 where no shell withholds.
    """

    def __init__(self) -> None:
        self.withheld_max = 0
        self._kept: EarlyRoom[bytes, Early] = EarlyRoom(PUBLICATIONS)
        self._due: dict[bytes, None] = {}  # names of the kept wires that are to be judged
        self.next_deadline: float | None = None
        """The time at which wires are due for judgement; None if none are."""
        self._links: Counter[str] = Counter()  # withheld acknowledgements, by neighbour
        self._last = 0  # number; negative, since the reader's overflow counts upwards
        self.taken: list[int] = []
        """The numbers of withheld wires that may be acknowledged."""
        self._instead: dict[int, int] = {}  # the overflow's number to our number of a withheld wire

    def __len__(self) -> int:
        return len(self._kept)

    def take_repeat(self, event: Received) -> list[Effect]:
        """Returns the effects of a wire waiting already; none for another wire. On another connection the former copy
        is gone; on the same connection the former copy is acknowledged.
        """
        early = self._kept.get(_name(event)) if len(self._kept) and _carries(event.wire) else None
        if early is None:
            return []
        self._release(early)
        early.number = self._number(event.peer)
        return [Count("publications_ahead"), *_withhold(early.number)]

    def instead(
        self, event: Received, effects: list[Effect], *, keeps: bool, before: Early | None = None
    ) -> list[Effect]:
        """Returns the effects of a wire from a neighbour that may be ahead, without blame for a right that is unknown
        here. `keeps`: the wire waits instead of being refused. `before`: the wire's entry, if it waited until now.
        """
        for at, effect in enumerate(effects):  # noqa: B007  the place is needed below
            if isinstance(effect, Count) and _is_of_rights(effect):
                break
        else:
            return effects
        if not _carries(event.wire):
            return effects
        rest = [e for e in effects[at + 1 :] if not (isinstance(e, Blame) and e.member == event.peer)]
        kept = self._keep_wire(event, before) if keeps else effects[at : at + 1]
        return [*effects[:at], *kept, *rest]

    def _keep_wire(self, event: Received, before: Early | None) -> list[Effect]:
        early = before or Early(_name(event), event, self._number(event.peer))
        size = wire_bytes(event.wire) + CHAR_BYTES * len(event.wire.topic)  # the topic is unverified and may be long
        withheld = [] if before else _withhold(early.number)
        gone = self._kept.keep_value(early.name, event.peer.encode(), early, size) or ()
        for name, lost in gone:
            self._due.pop(name, None)
            self._release(lost)
        counted, *dropped = kept_early(len(gone))
        return [counted, *withheld, *dropped]

    def release_peer(self, peer: str | None, now: float) -> None:
        """Makes the waiting wires of a neighbour, or of all if `peer` is None, due for judgement."""
        self._due.update((name, None) for name, early in self._kept.items() if peer in (None, early.event.peer))
        self.next_deadline = now if self._due else None

    def take_due_wires(self) -> list[Early]:
        """Takes out at most `JUDGED_AT_ONCE` wires that are due, in the order of arrival. The caller passes the effects
        of each to `judged`.
        """
        taken = [self._kept.pop(name) for name in list(self._due)[:JUDGED_AT_ONCE]]
        found = [early for early in taken if early is not None]
        for early in found:
            del self._due[early.name]
        self.next_deadline = self.next_deadline if self._due else None
        return found

    def judged(self, early: Early, effects: Sequence[Effect]) -> list[Effect]:
        """Takes the effects of a judged wire and returns those to carry out. If the wire is withheld again for want of
        room, its former withheld number stands for the new one.
        """
        number = next((effect.number for effect in effects if isinstance(effect, Withhold)), 0)
        if self._kept.get(early.name) is early:
            return list(effects)
        if number and early.number:
            self._instead[number] = early.number
            self._links[early.event.peer] -= 1
        else:
            self._release(early)
        return [effect for effect in effects if not isinstance(effect, Withhold)]

    def add_acknowledged(self, effects: Iterable[Effect]) -> list[Effect]:
        """Adds the waiting wires that may be acknowledged to a reader's effects at the end of an event."""
        if not (self.taken or self._instead):
            return list(effects)
        told = [self._ours(effect) if isinstance(effect, Take) else effect for effect in effects]
        if self.taken:
            told.append(Take(tuple(self.taken)))
            self.taken.clear()
        return told

    def _ours(self, take: Take) -> Take:
        return Take(tuple(self._instead.pop(number, number) for number in take.numbers))

    def _number(self, peer: str) -> int:
        if self._links[peer] >= self.withheld_max:
            return 0
        self._links[peer] += 1
        self._last -= 1
        return self._last

    def _release(self, early: Early) -> None:
        """Lets a withheld wire be acknowledged."""
        if early.number:
            self._links[early.event.peer] -= 1
            self.taken.append(early.number)
            early.number = 0


def _name(event: Received) -> bytes:
    wire = event.wire
    told = [text for pair in wire.properties for text in pair]
    named = "\0".join((event.peer, wire.topic, *told)).encode(errors="surrogatepass")
    return hashlib.sha256(named + b"\0" + wire.payload).digest()


def _withhold(number: int) -> list[Effect]:
    return [Withhold(number)] if number else []


def _is_of_rights(count: Count) -> bool:
    return count.name == "refused" and count.label == NotAuthorised.__name__


def _carries(wire: Wire) -> bool:
    """Returns True for a publication or a key: the wires that members pass on."""
    return carries_key_alone(wire.topic) or not wire.topic.startswith(f"{CONTROL_ROOT}/")
