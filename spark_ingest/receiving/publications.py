"""Publications of a receiver from their first piece to the disk: waiting, whole, given up, late; and their acks.

Pieces come verified from `collector`, which says which parts a form still misses. A form of a publication becomes its
row; a form that is not whole after `incomplete_s` is a row with the reason, and if it becomes whole later, a second
one. Pure. Not here: which pieces are believed, and content or keys that are on their way.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from bridge.contract import Allowance
from bridge.reader import Lineages, is_dated
from bridge.wire import Admitted
from keys.envelope import NO_KEY
from spark_ingest.receiving.heard import HeardTimes
from spark_ingest.receiving.late import Late
from spark_ingest.receiving.sealing_table import VARIANTS_MAX, FormTable
from spark_ingest.receiving.sealings import Ack, Form, Group, State, record_of
from spark_ingest.receiving.seen import Seen
from spark_ingest.spool import SpooledKey

HELD_MAX = 65_536
"""Publications in memory. Receive Maximum keeps honest senders far below; beyond the bound a piece is left
unacknowledged and comes again after the next reconnect.
"""
STALE_KEPT = 65_536
"""Old publications of unknown publishers that are remembered, so that a replay fills no disk."""
UNVOUCHED_MAX = 4_096
"""Publications that only one replica brought and that others have to vouch for: so many of each replica are set apart
at once ...
"""
UNVOUCHED_EVERY_S = 0.15
"""... and then one more in this time. Further ones wait unacknowledged, so that no honest publication is lost, and
a bad replica fills neither memory nor disk with publications that an excluded member has dated back: it stalls
itself.
"""


class HeldOverflowError(Exception):
    """A piece came beyond HELD_MAX."""


class Publications:
    """The publications of a receiver: `begin_form` and `piece`, `wake` and `give_up`, then `take_group`, write,
    `note_written`.

    `missing(form)`: the reason for which it cannot be opened yet, in the words of column `reason`; None if it can be.
    `material(key id)`: the spool's material of its key. `count`: counts figures.
    """

    def __init__(
        self,
        missing: Callable[[Form], str | None],
        material: Callable[[bytes], SpooledKey | None],
        count: Callable[..., None],
        seen: Seen,
        lineages: Lineages,
        incomplete_s: float,
    ) -> None:
        self._missing, self._material, self._count = missing, material, count
        self._incomplete_s = incomplete_s
        self.seen, self._lineages = seen, lineages
        self.is_beside = False
        """True if others write into the spool meanwhile: a publication may have become a row while it stood in the
        queue.
        """
        self.owed: list[Ack] = []
        """Acknowledgements of pieces that owe the disk nothing, for the caller to take."""
        self._forms = FormTable()
        self.told = self._forms.told
        """Forms by property `vmq` and wire topic, for a while after they ended too."""
        self._waiting: OrderedDict[int, Form] = OrderedDict()  # by age
        self._by_key: dict[bytes, dict[int, Form]] = {}  # waiting or late, by key id
        self._late = Late()
        self._unvouched: Counter[str] = Counter()  # by replica; members of the overlay only
        self._apart: dict[str, Allowance] = {}  # how many of those may be written: likewise
        self._stale: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._ready: deque[Form] = deque()
        self._met: set[bytes] = set()  # publishers with a fresh publication; members of the overlay only
        self.heard = HeardTimes()
        self._held: dict[int, Form] = {}  # kept from being given up while our clock is in doubt
        self._doubted = False

    # ------------------------------------------------------------------------------------------- pieces

    def begin_form(self, replica: str, told: tuple[str, str], admitted: Admitted, now: float) -> Form | None:
        """Returns a new form; None if the publication is not wanted. Raises HeldOverflowError."""
        header = admitted.header
        author, topic = self._lineages.author(header.publisher, header.sequence), told[1]
        publication = author, header.sequence
        if self.seen.has_written(*publication, topic, header.retain) or publication in self._stale:
            self._count("duplicates_dropped")
            return None
        old = is_dated(header, now)
        if not old:
            self.heard.fresh.add(header.publisher)
        elif header.publisher not in self._met and not self.seen.knows_author(author):
            self.heard.dated(header.publisher, header.time_ms, now)
        if header.deadline_ms and header.deadline_ms < now * 1000 and self.heard.doubt is None:
            self._count("expired")
            return None
        if len(self._forms.forms_of(publication)) >= VARIANTS_MAX:
            self._count("variants_dropped")
            return None
        if not admitted.live and self._unvouched[replica] >= 2 * UNVOUCHED_MAX:
            raise HeldOverflowError  # more than its window and what was set apart
        if len(self._waiting) + len(self._held) + len(self._ready) >= HELD_MAX:
            raise HeldOverflowError
        entry = Form(told, admitted, header, topic, now, publication, waits_since=now)
        entry.old = old and not self.seen.would_know(header.time_ms, now)
        self._forms.add_form(entry)
        if not admitted.live:
            entry.unvouched_at = replica
            self._unvouched[replica] += 1
            self._apart.setdefault(replica, Allowance(UNVOUCHED_MAX, UNVOUCHED_EVERY_S, now))
        return entry

    def release_form(self, entry: Form) -> None:
        """Stops counting a form against the replica that brought it first."""
        if entry.unvouched_at is not None:
            self._unvouched[entry.unvouched_at] -= 1
            entry.unvouched_at = None

    def is_whole_at_once(self, entry: Form, ack: Ack) -> bool:
        """Queues a new form that is whole with its first piece and alone of its publication, as most are. Returns True
        then.

        No other form has to end for it, and none waits for it.
        """
        if entry.content is None or entry.unvouched_at is not None or entry.old:
            return False
        if len(self._forms.forms_of(entry.publication)) > 1 or self._missing(entry) is not None:
            return False
        self._met.add(entry.header.publisher)
        self._queue(entry)
        entry.acks.append(ack)
        return True

    def piece(self, entry: Form, ack: Ack) -> None:
        """Keeps the acknowledgement of a replica's piece as long as it is owed."""
        other = self._forms.other_whole(entry)
        if entry.state is State.DONE and other is None:
            self._count("duplicates_dropped")
            self.owed.append(ack)
            return
        # If another form of this publication is whole, that one's write answers for this piece too.
        (other or entry).acks.append(ack)
        if entry.state in (State.WAITING, State.LATE):
            self._complete(entry)
        if entry.state in (State.LATE, State.DONE):
            # Its incomplete form is on disk and this piece did not make it whole, or another form is on disk.
            self.owed += entry.acks
            entry.acks = []
        if entry.state is State.WAITING:
            self._await(entry)

    def note_content(self, entry: Form) -> None:
        """Notes that content of a form came: a late form has grown."""
        if entry.state is State.LATE:
            self._keep_late_form(entry)

    # ------------------------------------------------------------------------------------- completing

    def wake_all(self) -> None:
        """Looks again at all forms waiting for a key."""
        for key_id in list(self._by_key):
            self.wake(key_id)

    def _await(self, entry: Form) -> None:
        if id(entry) in self._waiting or id(entry) in self._held:
            return
        self._waiting[id(entry)] = entry
        if entry.header.key_id != NO_KEY:
            self._by_key.setdefault(entry.header.key_id, {})[id(entry)] = entry

    def wake(self, key_id: bytes) -> None:
        """Looks again at forms waiting for a key that became usable."""
        for entry in list(self._by_key.get(key_id, {}).values()):
            self._complete(entry)

    def _complete(self, entry: Form) -> None:
        if self._missing(entry) is not None or self._holds(entry):
            return
        other = self._forms.other_whole(entry)
        if other is None:
            self._settle_form(entry, None)
        else:  # it is on its way to the disk, and so one row is: what was sealed anew is the same publication
            other.acks += entry.acks
            entry.acks = []
            self._forget_waiting(entry)
            self._finish_form(entry)

    def _settle_form(self, entry: Form, reason: str | None) -> None:
        """Queues the form for writing; the publication's other forms are not wanted any more."""
        late = entry.state is State.LATE
        self._forget_waiting(entry)
        header = entry.header
        if late and self.seen.has_written(*entry.publication, entry.topic, header.retain):
            self._finish_form(entry)  # another form of it was written meanwhile
            return
        if reason is None:
            if self._too_old(entry):
                entry.stale = True
                reason = "stale: too old to be the first of an unknown publisher"
            else:
                self._met.add(header.publisher)
        entry.reason = reason
        self._forms.join(entry)
        if reason is None:
            entry.acks += self._end_other_forms(entry)
        self._queue(entry)

    def _queue(self, entry: Form) -> None:
        """Puts a form into the queue for the disk."""
        # Held here, since the key may be forgotten before this is written.
        entry.material = entry.material or self._material(entry.header.key_id)
        entry.state = State.READY
        self._ready.append(entry)

    def _too_old(self, entry: Form) -> bool:
        """Returns True for a possible replay: an old publication of a publisher that was never heard (docs/protocol.md
        §5.2).
        """
        return (
            entry.old and entry.header.publisher not in self._met and not self.seen.knows_author(entry.publication[0])
        )

    def _end_other_forms(self, entry: Form) -> list[Ack]:
        """Ends the waiting forms of a publication of which one form is whole; returns the acknowledgements that they
        owe.
        """
        acks: list[Ack] = []
        for other in list(self._forms.forms_of(entry.publication)):
            if other is not entry and other.state is State.WAITING:
                acks += other.acks
                other.acks = []
                self._forget_waiting(other)
                self._finish_form(other)
        return acks

    def _forget_waiting(self, entry: Form) -> None:
        waited = self._waiting.pop(id(entry), None) or self._held.pop(id(entry), None)
        if waited is None and not self._late.drop_form(entry):
            return  # whole with its first piece: it never waited
        self._forget_key(entry)

    def _forget_key(self, entry: Form) -> None:
        waiting = self._by_key.get(entry.header.key_id)
        if waiting is not None:
            waiting.pop(id(entry), None)
            if not waiting:
                del self._by_key[entry.header.key_id]

    def _finish_form(self, entry: Form) -> None:
        self.release_form(entry)
        self._forms.end_form(entry)

    def give_up(self, now: float) -> None:
        """Gives up forms that have waited for `incomplete_s`; forgets old headers."""
        self._settle_doubt()
        while self._waiting:
            entry = next(iter(self._waiting.values()))
            if entry.waits_since + self._incomplete_s > now:
                break
            if self._holds(entry):
                self._held[id(entry)] = self._waiting.pop(id(entry))
                continue
            if entry.unvouched_at is not None and not self._apart[entry.unvouched_at].spend_one(now):
                entry.waits_since = now
                self._waiting.move_to_end(id(entry))
                continue
            self._count("incomplete")
            self._settle_form(entry, self._missing(entry))
        self._forms.forget_ended()

    def _holds(self, entry: Form) -> bool:
        """Returns True for a form looking like a replay by a clock that cannot be believed: it stays as it is."""
        holds = self._too_old(entry) and self.heard.doubt is not None
        self._doubted |= holds
        return holds

    def _settle_doubt(self) -> None:
        """Settles held forms once our clock is believed again: each becomes a row, or is set apart."""
        if not self._doubted or self.heard.doubt is not None:
            return
        self._doubted = False
        self._waiting = OrderedDict(self._held | self._waiting)  # what is held came before
        self._held.clear()
        for entry in [each for each in self._waiting.values() if each.old]:
            self._complete(entry)

    @property
    def next_deadline(self) -> float | None:
        """The time at which a form is to be given up."""
        first = next(iter(self._waiting.values()), None)
        return None if first is None else first.waits_since + self._incomplete_s

    # ------------------------------------------------------------------------------------------- writing

    @property
    def ready(self) -> int:
        """The number of publications waiting to be written."""
        return len(self._ready)

    def take_group(self, max_rows: int, max_bytes: int | None = None) -> Group | None:
        """Returns the next publications to write, in the order of becoming whole; None if there are none.

        At most `max_rows`, with at most `max_bytes` of content, but one at least.
        """
        entries: list[Form] = []
        size = 0
        while self._ready and len(entries) < max_rows:
            if self.is_beside and self._is_written(self._ready[0]):
                self._drop_form(self._ready.popleft())
                continue
            size += len(self._ready[0].content or b"")
            if entries and max_bytes is not None and size > max_bytes:
                break
            entries.append(self._ready.popleft())
        if not entries:
            return None
        for entry in entries:
            entry.state = State.WRITING
            if entry.reason is not None and self._revives(entry):
                entry.reason = None
        keys = {entry.header.key_id: entry.material for entry in entries if entry.material is not None}
        return Group(tuple(map(record_of, entries)), keys, tuple(entries))

    def _is_written(self, entry: Form) -> bool:
        return self.seen.has_written(*entry.publication, entry.topic, entry.header.retain)

    def _drop_form(self, entry: Form) -> None:
        """Ends a form of which another collector wrote the row."""
        self.owed += entry.acks
        entry.acks = []
        self._finish_form(entry)
        self._count("duplicates_dropped")

    def _revives(self, entry: Form) -> bool:
        """Returns True if the missing part came while the form stood in the queue, and no other form is the row."""
        return (
            not entry.stale
            and self._missing(entry) is None
            and self._forms.other_whole(entry) is None
            and not self._is_written(entry)
            and not self._too_old(entry)
        )

    def note_written(self, group: Group) -> list[Ack]:
        """Notes that the group is on disk; returns the pieces that may be acknowledged now."""
        acks: list[Ack] = []
        spooled = 0
        for entry in group.entries:
            if entry.reason is None:
                header = entry.header
                self.seen.mark_written(*entry.publication, entry.topic, header.retain)
                spooled += 1
                if len(self._forms.forms_of(entry.publication)) > 1:
                    acks += self._end_other_forms(entry)  # those that came while this one was being written
            elif not entry.stale:
                self._keep_late(entry)
                self._complete(entry)
                if entry.state is State.READY:
                    continue  # it became whole meanwhile: that form is not on disk yet
            else:
                self._stale[entry.publication] = None
                if len(self._stale) > STALE_KEPT:
                    self._stale.popitem(last=False)
            acks += entry.acks
            entry.acks = []
            if entry.state is State.WRITING:
                self._finish_form(entry)
        self._count("spooled", amount=spooled)
        return acks

    def _keep_late(self, entry: Form) -> None:
        """Keeps an incomplete form that is on disk in memory, since it may become whole."""
        entry.state = State.LATE
        self._forms.leave_live(entry)
        if entry.header.key_id != NO_KEY:
            self._by_key.setdefault(entry.header.key_id, {})[id(entry)] = entry
        self._keep_late_form(entry)

    def _keep_late_form(self, entry: Form) -> None:
        """Keeps a late form that came, or has grown."""
        for oldest in self._late.keep_form(entry):
            self._forget_key(oldest)
            self._finish_form(oldest)
