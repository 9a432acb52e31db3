"""Pieces of publications from the replicas of the home region in, whole publications for the spool out.

START HERE for the receiving side. A piece is one MQTT message of one replica: signed header, perhaps content,
perhaps key header and shares. Before anything is kept, waited for or counted against a publisher, its signature
and its publisher's right to the topic are verified. A publication is *whole* with one copy of the content that
fits the signed digest, k shares that fit the publisher's commitments and an epoch key that executors have
(`learn`); no key is needed to know that. What does not become whole in `incomplete_s` is spooled with the reason,
so that a dead replica, a liar or a key service that is away can neither fill the senders' windows nor hide a
publication; should it become whole later, it is spooled again.

Pure: no socket, file, thread or clock. A piece may be acknowledged only after the group with its publication is
on disk (`written`); pieces that are refused or not needed any more are acknowledged at once. Not here: putting content
together and asking for it (`contents`), order on a topic (rows carry sequence and time), names of liars beyond a count
for each replica.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Collection

from keys.envelope import (
    NO_KEY,
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    KeyName,
    Mode,
)
from keys.errors import BadFrame, KeysError, NotAuthorised

from .admission import Admission, Wire
from .contents import PROPERTY_PART, Contents
from .directory import Directory
from .forms import UNVOUCHED, WHOLE, Ack, Form, Group, State, record_of
from .keyring import Keyring
from .part import Part
from .seen import Seen

HELD_MAX = 65_536
"""Publications in memory. Receive Maximum keeps honest senders far below; beyond it a piece is left
unacknowledged and comes again after the next reconnect."""
VARIANTS_MAX = 4
"""Differently sealed forms of one publication that may wait: re-sealing is honest, but not without end."""
DONE_KEPT = 16_384
"""Headers of written publications that are recognised without verifying the same signature again."""
STALE_KEPT = 65_536
"""Old publications of unknown publishers that are remembered, so that a replay fills no disk."""
LATE_KEPT = 4_096
"""Incomplete publications that stay in memory, waiting for what is missing."""
FRESH_MS = 300_000
"""PROTOCOL §5: the time of the first publication of an unknown publisher may be off by this much."""
UNVOUCHED_MAX = 4_096
"""Publications of no live epoch that wait for another replica to bring them, of each replica. Receive Maximum keeps
honest ones below; a bad one fills neither memory nor disk with what somebody who was shut out has dated back."""


class _HeldOverflowError(Exception):
    """A piece beyond HELD_MAX."""


class Collector:
    """Merges the pieces that one receiver gets. `receive` and `tick`, then `take`, write, `written`."""

    def __init__(
        self,
        directory: Directory,
        *,
        seen: Seen | None = None,
        keyring: Keyring | None = None,
        incomplete_s: float = 10.0,
        part: Part | None = None,
    ) -> None:
        """`part`: which publications are for this receiver, if there are others; those of others are acknowledged."""
        self._part = part
        self._directory = directory
        self._admission = Admission(directory)
        self._hosted = directory.hosted  # while we run
        self.contents = Contents(directory, self._count)
        self.seen = seen or Seen()
        self.keyring = keyring or Keyring()
        self.keyring.attach(directory)
        self._incomplete_s = incomplete_s
        self._entries: OrderedDict[tuple[str, str], Form] = OrderedDict()  # by vmq and wire topic
        self._done: deque[tuple[str, str]] = deque()
        self._live: dict[tuple[bytes, int], list[Form]] = {}  # waiting, ready or being written
        self._waiting: OrderedDict[int, Form] = OrderedDict()  # by age
        self._by_key: dict[bytes, dict[int, Form]] = {}  # waiting or late, by key id
        self._late: OrderedDict[int, Form] = OrderedDict()
        self._stale: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._ready: deque[Form] = deque()
        self._unvouched: Counter[str] = Counter()  # by replica; members of the overlay only
        self._met: set[bytes] = set()  # publishers with a fresh publication; members of the overlay only
        self.figures: Counter[tuple[str, str]] = Counter()
        """(name of a figure, replica or empty): what was counted."""

    # ------------------------------------------------------------------------------------------- pieces

    def receive(self, replica: str, wire: Wire, ack: Ack, now: float) -> None:
        """A piece from a replica of the home region. Never raises for what the wire holds."""
        properties = wire.properties
        if len(properties) == 1 and properties[0][0] == PROPERTY_HEADER:
            # The usual case: another replica's copy, byte for byte, of what is whole already.
            known = self._entries.get((properties[0][1], wire.topic))
            if known is not None and known.state in WHOLE and known.reason is None and known.content == wire.payload:
                known.acks.append(ack)
                return
        self._follow()
        self._receive(replica, wire, dict(properties), ack, now)

    def _receive(self, replica: str, wire: Wire, properties: dict[str, str], ack: Ack, now: float) -> None:
        entry = None
        try:
            told = properties.get(PROPERTY_KEY)
            if told is not None:
                shares = properties.get(PROPERTY_SHARES)
                self._wake(self.keyring.take(replica, told, shares, self.figures))
            told = properties.get(PROPERTY_HEADER)
            if told is None:
                if PROPERTY_KEY not in properties:
                    raise BadFrame("neither a signed header nor a key")
                ack()
                return
            if self._part is not None and not self._part.takes(wire.topic, told):
                self._count("others_dropped")  # but the key that rode on it may be for what is ours
                ack()
                return
            entry = self._entries.get((told, wire.topic)) or self._admit(replica, told, wire, now)
            if entry is None:
                ack()
                return
            if entry.state is not State.DONE:
                part = properties.get(PROPERTY_PART)
                entry.content = self.contents.take(entry.header, entry.content, replica, wire.payload, part, now)
            self._piece(entry, replica, ack)
        except _HeldOverflowError:
            self._count("held_overflow")
        except KeysError as error:
            self._count(f"refused_{type(error).__name__}", replica)
            ack()
        if entry is not None and entry.state is State.WAITING:
            self._await(entry)

    def _follow(self) -> None:
        """Views may have changed: keys that came before theirs are looked at."""
        for key_id in self.keyring.follow(self.figures):
            self._wake(key_id)

    def _admit(self, replica: str, told: str, wire: Wire, now: float) -> Form | None:
        """A verified header as entry; None when the publication is not wanted. Raises KeysError, _HeldOverflowError."""
        admitted = self._admission.publication(told, wire.topic, now)
        header = admitted.header
        publication = (header.publisher, header.sequence)
        if (*publication, wire.topic, header.retain) in self.seen or publication in self._stale:
            self._count("duplicates_dropped")
            return None
        if header.deadline_ms and header.deadline_ms < now * 1000:
            self._count("expired")
            return None
        if len(self._live.get(publication, ())) >= VARIANTS_MAX:
            self._count("variants_dropped")
            return None
        needed = admitted.vouchers_needed
        if needed > 1 and self._unvouched[replica] >= UNVOUCHED_MAX:
            raise NotAuthorised("too much that is of no live epoch and that no other replica brings")
        if len(self._waiting) + len(self._ready) >= HELD_MAX:
            raise _HeldOverflowError
        entry = Form((told, wire.topic), header, admitted.frame, wire.topic, admitted.scope, now, publication, needed)
        replayed = wire.retain and header.retain
        entry.old = not replayed and abs(now * 1000 - header.time_ms) > FRESH_MS
        self._entries[entry.told] = entry
        self._live.setdefault(publication, []).append(entry)
        if needed > 1:
            entry.vouchers = set()
            entry.unvouched_at = replica
            self._unvouched[replica] += 1
        return entry

    def _piece(self, entry: Form, replica: str, ack: Ack) -> None:
        """A replica brought it: keep the acknowledgement as long as it is owed."""
        if entry.vouchers is not None:
            self._vouch(entry, entry.vouchers, replica)
        other = self._other_whole(entry)
        if entry.state is State.DONE and other is None:
            self._count("duplicates_dropped")
            ack()
            return
        # If another form of this publication is whole, that one's write answers for this piece too.
        (other or entry).acks.append(ack)
        if entry.state in (State.WAITING, State.LATE):
            self._complete(entry)
        if entry.state in (State.LATE, State.DONE):
            # Its incomplete form is on disk and this piece did not make it whole, or another form is on disk.
            acks, entry.acks = entry.acks, []
            for each in acks:
                each()

    def _vouch(self, entry: Form, vouchers: set[str], replica: str) -> None:
        """A replica brings what is of no live epoch; with enough of ours it is believed."""
        if replica not in self._hosted:
            vouchers.add(replica)
        if self._directory.honest_among(vouchers):
            entry.vouchers = None
            self._release(entry)

    def _release(self, entry: Form) -> None:
        """It does not count against the replica that brought it first any more."""
        if entry.unvouched_at is not None:
            self._unvouched[entry.unvouched_at] -= 1
            entry.unvouched_at = None

    # ------------------------------------------------------------------------------------- completing

    def learn(self, names: Collection[KeyName]) -> None:
        """Executors have these epoch keys, and no others: what waited for one of them may be whole now."""
        self.keyring.learn(names)
        for key_id in list(self._by_key):
            self._wake(key_id)

    def _await(self, entry: Form) -> None:
        if id(entry) in self._waiting:
            return
        self._waiting[id(entry)] = entry
        if entry.header.key_id != NO_KEY:
            self._by_key.setdefault(entry.header.key_id, {})[id(entry)] = entry

    def _wake(self, key_id: bytes | None) -> None:
        """A key became usable: what waited for it may be whole now."""
        if key_id is not None:
            for entry in list(self._by_key.get(key_id, {}).values()):
                self._complete(entry)

    def _complete(self, entry: Form) -> None:
        if self._missing(entry) is not None:
            return
        other = self._other_whole(entry)
        if other is None:
            self._settle(entry, None)
        else:  # it is on its way to the disk, and so one row is: what was sealed anew is the same publication
            other.acks += entry.acks
            entry.acks = []
            self._forget_waiting(entry)
            self._finish(entry)

    def _other_whole(self, entry: Form) -> Form | None:
        """A differently sealed form of the same publication that is whole and not on disk yet."""
        for form in self._live.get(entry.publication, ()):
            if form is not entry and form.state in WHOLE and form.reason is None:
                return form
        return None

    def _missing(self, entry: Form) -> str | None:
        """What is missing, in the words of column `reason`; None for a whole publication."""
        if entry.vouchers is not None:
            return f"{UNVOUCHED}: of none that is live, and brought by fewer than {entry.vouchers_needed} replicas"
        if entry.content is None:
            return "content: no copy fits the signed digest"
        if entry.header.mode is Mode.PLAIN:
            return None
        return self.keyring.missing(entry.header, entry.scope)

    def _settle(self, entry: Form, reason: str | None) -> None:
        """Queue the entry for writing; other forms of the same publication are not wanted any more."""
        late = entry.state is State.LATE
        self._forget_waiting(entry)
        header = entry.header
        if late and (*entry.publication, entry.topic, header.retain) in self.seen:
            self._finish(entry)  # another form of it was written meanwhile
            return
        if reason is None:
            if self._too_old(entry):
                entry.stale = True
                reason = "stale: too old to be the first of an unknown publisher"
            else:
                self._met.add(header.publisher)
        entry.reason = reason
        # Held here, since the keyring may forget a key before this is written.
        entry.material = self.keyring.material(header.key_id)
        entry.state = State.READY
        forms = self._live.setdefault(entry.publication, [])
        if entry not in forms:
            forms.append(entry)
        if reason is None:
            entry.acks += self._end_other_forms(entry)
        self._ready.append(entry)

    def _too_old(self, entry: Form) -> bool:
        """Whether it could be a replay: PROTOCOL §5, an old publication of somebody who was never heard."""
        publisher = entry.header.publisher
        return entry.old and publisher not in self._met and not self.seen.knows(publisher)

    def _end_other_forms(self, entry: Form) -> list[Ack]:
        """One form of the publication is whole: those that still wait end, and leave what they owe."""
        acks: list[Ack] = []
        forms = self._live.get(entry.publication, ())
        if len(forms) == 1 and entry in forms:
            return acks
        for other in list(forms):
            if other is not entry and other.state is State.WAITING:
                acks += other.acks
                other.acks = []
                self._forget_waiting(other)
                self._finish(other)
        return acks

    def _forget_waiting(self, entry: Form) -> None:
        if self._waiting.pop(id(entry), None) is None and self._late.pop(id(entry), None) is None:
            return  # whole with its first piece: it never waited
        waiting = self._by_key.get(entry.header.key_id)
        if waiting is not None:
            waiting.pop(id(entry), None)
            if not waiting:
                del self._by_key[entry.header.key_id]

    def _finish(self, entry: Form) -> None:
        entry.state = State.DONE
        entry.content = entry.material = None
        self._release(entry)
        self._done.append(entry.told)
        forms = self._live.get(entry.publication, [])
        if entry in forms:
            forms.remove(entry)
            if not forms:
                del self._live[entry.publication]

    def tick(self, now: float) -> None:
        """Give up on what has waited for `incomplete_s`; forget old headers; ask for content."""
        self._follow()
        self.contents.tick(now)
        while self._waiting:
            entry = next(iter(self._waiting.values()))
            if entry.arrived + self._incomplete_s > now:
                break
            self._count("incomplete")
            self._settle(entry, self._missing(entry))
        while len(self._done) > DONE_KEPT:
            told = self._done.popleft()
            done = self._entries.get(told)
            if done is not None and done.state is State.DONE:
                del self._entries[told]

    @property
    def next_deadline(self) -> float | None:
        """When `tick` has something to give up or to ask for."""
        first = next(iter(self._waiting.values()), None)
        patience = None if first is None else first.arrived + self._incomplete_s
        return min((at for at in (patience, self.contents.next_deadline) if at is not None), default=None)

    # ------------------------------------------------------------------------------------------- writing

    @property
    def ready(self) -> int:
        """Publications that wait to be written."""
        return len(self._ready)

    def take(self, max_rows: int, max_bytes: int | None = None) -> Group | None:
        """The next publications to write, in the order in which they became whole; None if there are none.

        At most `max_rows`, with at most `max_bytes` of content, but one at least.
        """
        entries: list[Form] = []
        size = 0
        while self._ready and len(entries) < max_rows:
            size += len(self._ready[0].content or b"")
            if entries and max_bytes is not None and size > max_bytes:
                break
            entries.append(self._ready.popleft())
        if not entries:
            return None
        for entry in entries:
            entry.state = State.WRITING
            if self._revives(entry):
                entry.reason = None
                entry.material = self.keyring.material(entry.header.key_id)
        keys = {entry.header.key_id: entry.material for entry in entries if entry.material is not None}
        return Group(tuple(map(record_of, entries)), keys, tuple(entries))

    def _revives(self, entry: Form) -> bool:
        """Whether what was missing came while it stood in the queue, and no other form is the row."""
        return (
            entry.reason is not None
            and not entry.stale
            and self._missing(entry) is None
            and self._other_whole(entry) is None
            and (*entry.publication, entry.topic, entry.header.retain) not in self.seen
            and not self._too_old(entry)
        )

    def written(self, group: Group) -> list[Ack]:
        """The group is on disk: what may be acknowledged now."""
        acks: list[Ack] = []
        spooled = 0
        for entry in group.entries:
            header = entry.header
            if entry.reason is None:
                self.seen.mark(header.publisher, header.sequence, entry.topic, header.retain)
                spooled += 1
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
                self._finish(entry)
        self._count("spooled", amount=spooled)
        return acks

    def _keep_late(self, entry: Form) -> None:
        """An incomplete form is on disk: keep it in memory, it may become whole."""
        entry.state = State.LATE
        forms = self._live[entry.publication]
        forms.remove(entry)
        if not forms:
            del self._live[entry.publication]
        self._late[id(entry)] = entry
        if entry.header.key_id != NO_KEY:
            self._by_key.setdefault(entry.header.key_id, {})[id(entry)] = entry
        if len(self._late) > LATE_KEPT:
            oldest = next(iter(self._late.values()))
            self._forget_waiting(oldest)
            self._finish(oldest)

    def _count(self, figure: str, replica: str = "", amount: int = 1) -> None:
        self.figures[figure, replica] += amount
