"""Choice of the newest retained publication of a topic at a subscriber that has just joined (docs/protocol.md §5.3).

A liar may replay any retained publication that its author ever signed; honest replicas pass the replay on, so counting
replicas shows nothing. Hence a possibly old publication waits `RETAINED_WAIT_S` for newer ones; of all retained
publications of a member on a topic, the greatest (number, generation, key counter, sealing time) goes on. Opened
publications of several members compete: the last published one is the topic's. Live publications do not wait. The
order of arrival has no influence. A publication that is sealed anew keeps its number, so that subscribers do not get
it twice. A member is a single author under all its keys, but a publication under the present key outranks one under a
former key: a thief of the former key could otherwise name a number no later one exceeds. Replicas have their own
store.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from bridge.contract import FairBytes, FairTable
from bridge.document import Overlay, slot_of
from bridge.reader.kept import RETAINED, KeptReader
from bridge.reader.streams import Held
from bridge.reader.waiting import KEPT_OVERHEAD_BYTES
from bridge.wire import AHEAD_S
from keys.frames import Reader, number

RETAINED_WAIT_S = 0.5  # for replicas to send what they retain; docs/protocol.md §5.3
RETAINED_LIVE_S = 2.0  # a retained publication that was sealed longer ago may be a replay
NEWEST_MAX = 20_000  # retained topics of members that are remembered; a flooder forgets its own first
WAITING_BYTES = 64 << 20  # of retained publications that wait; a flooder loses its own first

Order: TypeAlias = tuple[int, int, int, int]


class Rank(Enum):
    """Rank of an opened retained publication for subscribers of its topic."""

    NEWEST = auto()
    OVERTAKEN = auto()
    KNOWN = auto()  # they have it, in this sealing or another one


class _Known(NamedTuple):
    """A member's last retained publication on a topic: time of publication, member, order of its sealing, and signing
    key.
    """

    time_ms: int
    member: str
    order: Order
    party: bytes


def _place(held: Held) -> str:
    """Returns the place of a member's retained publication on a topic."""
    return f"{slot_of(held.topic)}/{held.admitted.publisher.name}"


class Joining:
    """The newest retained publication of each topic and, for each topic and member (a *place*), the last and the
    waiting publication.
    """

    def __init__(self, overlay: Overlay, kept: KeptReader | None = None) -> None:
        self._overlay = overlay
        self._kept = kept if kept is not None else KeptReader()
        self._last: FairTable[str, _Known] = FairTable(NEWEST_MAX)  # by place
        self._members: dict[str, set[str]] = {}  # places of it by what those of all members have in common
        self._waiting: FairBytes[str, Held] = FairBytes(WAITING_BYTES, KEPT_OVERHEAD_BYTES)
        self._until: OrderedDict[str, float] = OrderedDict()  # oldest first, all wait equally long

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay, in which members may have other keys."""
        self._overlay = overlay

    @staticmethod
    def may_be_old(held: Held) -> bool:
        header = held.admitted.header
        age_s = abs(held.arrived - header.time_ms / 1000)
        return (header.snapshot or age_s > RETAINED_LIVE_S) and not Joining.is_to_come(held)

    @staticmethod
    def is_to_come(held: Held) -> bool:
        """Returns True if a publication claims a future sealing time. Retained, it would outrank other members'
        publications on its topic until then.
        """
        return held.admitted.header.time_ms / 1000 > held.arrived + AHEAD_S

    def _rank(self, known: _Known) -> tuple[bool, Order]:
        """Returns the sort key ordering the sealings of a member by age."""
        member = self._overlay.members.get(known.member)
        return member is not None and member.certificate.party_id == known.party, known.order

    def _is_news(self, held: Held, last: _Known | None) -> bool:
        return last is None or self._rank(_known(held)) > self._rank(last)

    def offer(self, held: Held) -> bool:
        """Lets a publication wait for newer ones of its member. Returns False for a replay: this or a newer one is
        known.
        """
        place = _place(held)
        best, last = self._waiting.get(place), self._last.get(place)
        if not self._is_news(held, last) or not self._is_news(held, None if best is None else _known(best)):
            return False
        if last is not None and last.party != held.admitted.header.publisher and self._had(place, last, _known(held)):
            return False
        self._until.setdefault(place, held.arrived + RETAINED_WAIT_S)
        for gone, _ in self._waiting.put(place, held.admitted.publisher.name.encode(), held, held.size):
            self._until.pop(gone, None)
        return True

    def take_due(self, now: float) -> list[Held]:
        """Removes publications that waited long enough and are still their members' last; returns them, the newest
        first.
        """
        ready = []
        while self._until and next(iter(self._until.values())) <= now:
            place, _ = self._until.popitem(last=False)
            held = self._waiting.pop(place)
            if held is not None and self._is_news(held, self._last.get(place)):
                ready.append(held)
        return sorted(ready, key=lambda held: held.admitted.header.time_ms, reverse=True)

    @property
    def next_deadline(self) -> float | None:
        return next(iter(self._until.values()), None)

    def is_behind(self, held: Held) -> bool:
        """Returns True if a later publication of its author was delivered before."""
        last = self._last.get(_place(held))
        return last is not None and last.order[0] > held.admitted.header.sequence

    def take_opened(self, held: Held, time_ms: int) -> Rank:
        """Takes an opened publication, published at `time_ms` according to its author, and returns its rank."""
        known = _known(held, time_ms)
        place = _place(held)
        last = self._last.get(place)
        if last is not None and self._had(place, last, known):
            return Rank.KNOWN
        if last is not None and self._rank(last) > self._rank(known):
            return Rank.OVERTAKEN
        self._learn_last(place, known)
        others = (self._last.get(other) for other in self._members.get(slot_of(place), ()))
        return Rank.NEWEST if all(each is None or each <= known for each in others) else Rank.OVERTAKEN

    def _had(self, place: str, last: _Known, known: _Known) -> bool:
        """Returns True if `known` has the last known number, in any sealing and under any key of the member: its
        stream had no room to mark the number, or is another one. Records the newer sealing.
        """
        if last.order[0] != known.order[0]:
            return False
        if self._rank(known) > self._rank(last):
            self._learn_last(place, known._replace(time_ms=last.time_ms))
        return True

    def _learn_last(self, place: str, known: _Known) -> None:
        self._kept.put_row(RETAINED + place.encode(), _row(known))
        self._put_last(place, known)

    def _put_last(self, place: str, known: _Known) -> None:
        gone = self._last.put(place, known.member.encode(), known)
        self._members.setdefault(slot_of(place), set()).add(place)
        if gone is not None:
            self._kept.drop_row(RETAINED + gone[0].encode())
            slot = slot_of(gone[0])
            self._members[slot].discard(gone[0])
            if not self._members[slot]:
                del self._members[slot]

    # ------------------------------------------------------------------------------------------- over restarts

    def restore(self, place: str, row: bytes) -> None:
        """Restores a row of a former process. Raises BadFrame."""
        reader = Reader(row)
        time_ms, party = reader.number(8), reader.take_bytes(16)
        order = reader.number(8), reader.number(8), reader.number(4), reader.number(8)
        reader.expect_end()
        self._put_last(place, _Known(time_ms, place.rpartition("/")[2], order, party))

    def holds_waiting(self, topic: str, publisher: bytes, sequence: int) -> bool:
        """Returns True if this publication waits for newer ones."""
        author = self._overlay.by_party.get(publisher)
        held = None if author is None else self._waiting.get(f"{slot_of(topic)}/{author.name}")
        return held is not None and (held.topic, held.admitted.header.sequence) == (topic, sequence)


def _known(held: Held, time_ms: int = 0) -> _Known:
    header = held.admitted.header
    name = held.admitted.publisher.name
    return _Known(min(time_ms, header.time_ms), name, header.order, header.publisher)


def _row(known: _Known) -> bytes:
    sequence, generation, counter, sealed_ms = known.order
    parts = [number(known.time_ms, 8), known.party, number(sequence, 8), number(generation, 8)]
    return b"".join([*parts, number(counter, 4), number(sealed_ms, 8)])
