"""Intake from the outbox: hands entries on disk and QoS 0 beside them, in order, to the publisher, or leaves them.

QoS 1 and 2 come once they are on disk; QoS 0 is not stored, but waits for earlier publications. Entries without room
at the publisher are *left* on disk and read again in pages when there is room (`ReadPage`, `OutboxPage`). While
entries are left, new ones pass beside them, except in a scope with left entries: a new entry there would overtake, so
it is left too. While too many entries wait for a key or a right, pages pass over scopes without either; the passed
entries are read again once keys or rights changed. `publisher` seals and sends; the shell's outbox, which answers as
`Shelf`, is the disk.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from typing import Protocol

from bridge.contract import (
    Committed,
    Count,
    Effect,
    LeaveOnDisk,
    OutboxEntry,
    OutboxPage,
    Publication,
    ReadPage,
    Unstored,
    count_of,
    numbers_of,
)
from bridge.publisher.former_scopes import FormerScopes
from bridge.publisher.publisher import Publisher
from bridge.publisher.residents import Fleeting
from bridge.publisher.windows import RunAhead

UNSTORED_MAX = 10_000  # batches of QoS 0 behind one group commit: a stalled disk does not fill memory ...
UNSTORED_BYTES_MAX = 32 << 20  # ... nor do fewer that are large
CHAINS_MAX = 65_536  # scopes whose last stored sequence is remembered for QoS 0; the oldest is forgotten
LOOK_EVERY_S = 1.0  # how often a disk that could not be read is tried again, and the age of what is left looked at


class Shelf(Protocol):
    """The outbox on disk, as queries changing nothing."""

    def first_from(self, start: int) -> tuple[int, int] | None:
        """Returns sequence and time of storage (ms since the UNIX epoch) of the first entry on disk from `start`
        on.
        """

    def is_left_on_disk(self, sequence: int) -> bool:
        """Returns True if an entry is on disk and not in hand."""

    def last_of_chain(self, chain: str) -> int:
        """Returns the sequence of the last stored QoS >= 1 publication of a chain (`Sealer.chain_of`), 0 for none."""


class NothingLeft:
    """The shelf of a party storing nothing."""

    def first_from(self, start: int) -> tuple[int, int] | None:
        return None

    def is_left_on_disk(self, sequence: int) -> bool:
        return False

    def last_of_chain(self, chain: str) -> int:
        return 0


class OutboxIntake:
    """The intake of a gateway. Entries older than `max_age_s` are read without room, so that the publisher drops
    them.
    """

    def __init__(
        self,
        publisher: Publisher,
        shelf: Shelf,
        max_age_s: float | None = None,
        scopes: FormerScopes | None = None,
    ) -> None:
        self._publisher, self._shelf, self._max_age_s = publisher, shelf, max_age_s
        self._scopes = scopes or FormerScopes(())
        self._storing: dict[int, None] = {}  # appended, not yet reported by the disk; in order
        self._unstored: dict[int, Publication] = {}  # by number, ascending
        self._bounded = Fleeting(UNSTORED_MAX, UNSTORED_BYTES_MAX)
        self._last_stored: OrderedDict[str, int] = OrderedDict()
        first = shelf.first_from(0)
        self.left_from = None if first is None else first[0]
        """The first number that may be left on disk; None if nothing is."""
        self._page_at = self.left_from  # the next page begins there; None: all is read, or passed over
        self._passed: set[str] = set()  # the scopes that pages passed over since the page at `left_from`
        self._changes: tuple[int, int] | None = None  # of keys and rights, when `_passed` began
        self._left_is_old = self._unreadable = self._asked = False
        self._look_at: float | None = None
        self._ahead = RunAhead()

    def appending(self, sequences: Sequence[int]) -> list[Effect]:
        """Notes publications of QoS 1 or 2 that are on their way to the disk."""
        self._storing.update(dict.fromkeys(sequences))
        self._scopes.stored(min(sequences), max(sequences))
        return []

    def not_appended(self, sequence: int, now: float) -> list[Effect]:
        """Takes the failure to store a publication: publications that waited behind it go on."""
        self._storing.pop(sequence, None)
        return self.committed(Committed(()), now)

    def unstored(self, event: Unstored, now: float) -> list[Effect]:
        """Takes a publication of QoS 0, or a batch of them. Beyond the bounds the oldest of the client with most
        goes.
        """
        publication = event.publication
        self._unstored[event.sequence] = publication
        self._bounded.add_entry(event.sequence, len(publication.payload), publication.owner)
        gone = [count_of(self._unstored.pop(sequence)) for sequence in self._bounded.excess()]
        effects: list[Effect] = [Count("qos0_dropped", sum(gone))] if gone else []
        return effects if self._storing else effects + self.committed(Committed(()), now)

    def committed(self, event: Committed, now: float) -> list[Effect]:
        """Hands on entries in order of sequence, together with QoS 0 publications that waited for their turn.

        QoS 0 is not stored, but must not overtake: its number would make an earlier stored entry look like a
        repetition.
        """
        if event.appending:
            self.appending(event.appending)
        ready: list[OutboxEntry] = list(event.entries)
        for sequence, _, publication in event.entries:
            self._storing.pop(sequence, None)
            if publication.records > 1:
                for number in numbers_of(publication, sequence):
                    self._storing.pop(number, None)
        first_storing = next(iter(self._storing), None)
        while self._unstored and (first_storing is None or next(iter(self._unstored)) < first_storing):
            sequence = next(iter(self._unstored))
            self._bounded.remove_entry(sequence)
            ready.append((sequence, 0, self._unstored.pop(sequence)))
        ready.sort(key=itemgetter(0))
        taken, effects = self._sort_out(ready, now)
        if taken:
            effects += self._publisher.take_entries(taken, now)
        return effects

    def _sort_out(self, ready: Sequence[OutboxEntry], now: float) -> tuple[list[OutboxEntry], list[Effect]]:
        """Returns the entries for which there is room now, and the effects for the others."""
        taken: list[OutboxEntry] = []
        effects: list[Effect] = []
        left: dict[int, None] = {}  # which the shelf does not know yet
        room, room_bytes = self._publisher.room
        for sequence, previous, publication in ready:
            topic, chain = publication.topic, self._chain(publication)
            before = previous if publication.qos else self._before(chain, sequence)
            if publication.qos:
                self._remember(chain, sequence)
                self._scopes.stored(sequence, sequence)
            overtakes = before in left or self._overtakes(sequence, before)
            if not publication.qos and overtakes:
                effects.append(Count("qos0_dropped", count_of(publication)))
            elif publication.qos and (
                overtakes or room <= 0 or room_bytes <= 0 or self._publisher.is_stuck(publication, now)
            ):
                self._leave(sequence, publication)
                left[sequence] = None
            else:
                self._ahead.went(sequence)
                taken.append((sequence, before, publication))
                room, room_bytes = room - 1, room_bytes - len(publication.payload) - len(topic)
        return taken, [*effects, LeaveOnDisk(tuple(left))] if left else effects

    def _chain(self, publication: Publication) -> str:
        topic = publication.topic
        return topic if publication.records else self._publisher.sealer.chain_of(topic).name

    def _before(self, chain: str, sequence: int) -> int:
        """Returns the predecessor of a QoS 0 publication in its scope, 0 for none. A former process may have stored
        the predecessor, and no replica may have it yet.
        """
        known = self._last_stored.get(chain)
        if known is None:
            known = self._shelf.last_of_chain(chain)
            self._remember(chain, known)
        return known if known < sequence else 0

    def _remember(self, chain: str, sequence: int) -> None:
        self._last_stored[chain] = sequence
        self._last_stored.move_to_end(chain)
        if len(self._last_stored) > CHAINS_MAX:
            self._last_stored.popitem(last=False)

    # ------------------------------------------------------------------------------------ what is left on disk

    def _overtakes(self, sequence: int, previous: int) -> bool:
        """Returns True if entries of its scope are or may be left on disk, or if it would run too far ahead of left
        entries.
        """
        if self._scopes.is_behind(self.left_from):
            return True
        if self.left_from is None:
            self._ahead.forget_blocks()
            return False
        return not self._ahead.may_go(sequence) or (
            previous >= max(1, self.left_from) and self._shelf.is_left_on_disk(previous)
        )

    def _leave(self, sequence: int, publication: Publication) -> None:
        self.left_from = sequence if self.left_from is None else min(self.left_from, sequence)
        self._page_at = sequence if self._page_at is None else min(self._page_at, sequence)
        if publication.retain:
            # An older one of ours on that topic, sealed anew meanwhile, would come after this one.
            self._publisher.overtaken(publication.topic, publication.time_ms)

    def is_left_on_disk(self, sequence: int) -> bool:
        """Returns True if an entry is on disk, and not in hand."""
        return self._shelf.is_left_on_disk(sequence)

    def wanted(self, now: float) -> list[Effect]:
        """Requests a page of left entries if they may go on now; called after every event."""
        if self.left_from is None or self._asked:
            return []
        if self._look_at is None or now >= self._look_at:
            self._check_left(now)
        start = self.left_from if self._left_is_old else self._next_page(now)
        if self._unreadable or start is None:
            return []
        self._asked = True
        return [ReadPage(start)]

    def _next_page(self, now: float) -> int | None:
        """Returns the number at which the next page begins, None for no page now. Passed entries come again when fewer
        entries wait, or when keys or rights changed.
        """
        full, changes = self._publisher.waiting_full, self._publisher.changes_at(now)
        if self._passed and (not full or changes != self._changes):
            self._passed.clear()
            self._page_at = self.left_from
        self._changes = changes
        if self._page_at is None or not self._publisher.wants_late:
            return None
        if full and (self._scopes.is_behind(self.left_from) or not self._ahead.may_go(self._page_at)):
            return None  # a passed entry may have records of any scope, or replicas would take it for a replay
        return self._page_at

    def page(self, event: OutboxPage, now: float) -> list[Effect]:
        """Takes a page of left entries."""
        self._asked = False
        self._unreadable = event.unreadable
        if event.unreadable:
            return []
        # What was left while the page was read stands behind it.
        following = event.following
        taken, passed = event.entries, tuple[int, ...]()
        if self._left_is_old:  # the page began at the first that is left
            self.left_from = following
            if following is None:
                self._passed.clear()
                self._page_at = None
            elif self._page_at is not None:
                self._page_at = max(self._page_at, following)
        else:
            taken, passed = self._not_passed(event.entries, now)
            self._page_at = following
            self.left_from = self.left_from if self._passed else following
        self._check_left(now)
        effects: list[Effect] = [LeaveOnDisk(passed)] if passed else []
        return effects + (self._publisher.take_entries(taken, now, late=True) if taken else [])

    def _not_passed(
        self, entries: tuple[OutboxEntry, ...], now: float
    ) -> tuple[tuple[OutboxEntry, ...], tuple[int, ...]]:
        """Returns the entries of a page that are taken, and the numbers of passed entries: while too many wait,
        each entry without key or right, and all later entries of the scope.
        """
        full = self._publisher.waiting_full
        if not (full or self._passed):
            return entries, ()
        behind = self._scopes.is_behind(self.left_from)
        taken: list[OutboxEntry] = []
        passed: list[int] = []
        for entry in entries:
            sequence, _, publication = entry
            chain = self._chain(publication)
            if chain in self._passed or (full and (behind or not self._publisher.could_go(publication, now))):
                if not self._passed:
                    self.left_from = sequence
                self._passed.add(chain)
                passed.append(sequence)
            else:
                self._ahead.went(sequence)
                taken.append(entry)
        return tuple(taken), tuple(passed)

    def _check_left(self, now: float) -> None:
        """Checks the age of left entries: too old ones are read to be dropped, room or not. Retries a disk that could
        not be read.
        """
        self._unreadable = self._left_is_old = False
        self._look_at = None if self.left_from is None else now + LOOK_EVERY_S
        if self._max_age_s is not None and self.left_from is not None:
            first = self._shelf.first_from(self.left_from)
            self._left_is_old = first is not None and first[1] / 1000 + self._max_age_s < now

    @property
    def next_deadline(self) -> float | None:
        return (
            self._look_at if self.left_from is not None and (self._unreadable or self._max_age_s is not None) else None
        )
