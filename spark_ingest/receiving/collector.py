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
from collections.abc import Callable, Collection, Iterable, Sequence

from gateway.overlay import Publish
from keys.envelope import NO_KEY, PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, KeyName, Mode
from keys.errors import BadFrame, KeysError
from spark_ingest.receiving.admission import Admission, Message, Piece, Wire
from spark_ingest.receiving.contents import PROPERTY_PART, Contents
from spark_ingest.receiving.directory import Directory
from spark_ingest.receiving.division import Part
from spark_ingest.receiving.keyring import Keyring
from spark_ingest.receiving.late import Late
from spark_ingest.receiving.sealing_table import VARIANTS_MAX, FormTable
from spark_ingest.receiving.sealings import UNVOUCHED, WHOLE, Ack, Form, Group, State, call_each, record_of
from spark_ingest.receiving.seen import Seen
from spark_ingest.receiving.vouching import Vouching

HELD_MAX = 65_536
"""Publications in memory. Receive Maximum keeps honest senders far below; beyond it a piece is left
unacknowledged and comes again after the next reconnect."""
STALE_KEPT = 65_536
"""Old publications of unknown publishers that are remembered, so that a replay fills no disk."""
FRESH_MS = 300_000
"""docs/protocol.md §5.2: the time of the first publication of an unknown publisher may be off by this much."""


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
        acknowledge: Callable[[Sequence[Ack]], None] = call_each,
    ) -> None:
        """`part`: which publications are for this receiver, if there are others; those of others are acknowledged.

        `acknowledge`: takes what came as `ack` with pieces that owe the disk nothing.
        """
        self._part = part
        self._acknowledge = acknowledge
        self._owed: list[Ack] = []  # of the pieces in hand, to be acknowledged at once
        self._directory = directory
        self._admission = Admission(directory)
        self._vouching = Vouching(directory)
        self.contents = Contents(directory, self._count)
        self.seen = seen or Seen()
        self.keyring = keyring or Keyring()
        self.keyring.attach(directory)
        self._incomplete_s = incomplete_s
        self._forms = FormTable()
        self._waiting: OrderedDict[int, Form] = OrderedDict()  # by age
        self._by_key: dict[bytes, dict[int, Form]] = {}  # waiting or late, by key id
        self._late = Late()
        self._stale: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._ready: deque[Form] = deque()
        self._met: set[bytes] = set()  # publishers with a fresh publication; members of the overlay only
        self.figures: Counter[tuple[str, str]] = Counter()
        """(name of a figure, replica or empty): what was counted."""

    # ------------------------------------------------------------------------------------------- pieces

    def receive(self, replica: str, wire: Wire, ack: Ack, now: float) -> None:
        """A piece from a replica of the home region. Never raises for what the wire holds."""
        self._follow()
        self._receive(replica, wire, ack, now)
        self._settle_owed()

    def receive_all(self, replica: str, publishes: Sequence[Publish], acks: Iterable[Ack], now: float) -> None:
        """The same for the messages of one read, each with its `ack`."""
        self._follow()
        entries = self._forms.told
        for publish, ack in zip(publishes, acks, strict=False):
            properties = publish.properties.user
            if len(properties) != 1 or properties[0][0] != PROPERTY_HEADER:
                piece = Piece(publish.topic, publish.payload, publish.retain, properties)
                self._receive(replica, piece, ack, now)
                continue
            told = (properties[0][1], publish.topic)
            known = entries.get(told)
            if known is not None and known.state in WHOLE and known.reason is None and known.content == publish.payload:
                known.acks.append(ack)  # another replica's copy, byte for byte, of what is whole already
            else:
                self._announced(replica, told, publish, None, ack, now)
        self._settle_owed()

    def _settle_owed(self) -> None:
        if self._owed:
            owed, self._owed = self._owed, []
            self._acknowledge(owed)

    def _receive(self, replica: str, wire: Wire, ack: Ack, now: float) -> None:
        properties = dict(wire.properties)
        header, key = properties.get(PROPERTY_HEADER), properties.get(PROPERTY_KEY)
        try:
            if key is not None:
                self._wake(self.keyring.take(replica, key, properties.get(PROPERTY_SHARES), self.figures))
            if header is None and key is None:
                raise BadFrame("neither a signed header nor a key")
        except KeysError as error:
            self._refuse(replica, error, ack)
            return
        if header is None:
            self._owed.append(ack)
        else:
            self._announced(replica, (header, wire.topic), wire, properties.get(PROPERTY_PART), ack, now)

    def _announced(
        self, replica: str, told: tuple[str, str], message: Message, part: str | None, ack: Ack, now: float
    ) -> None:
        """What a message with a header brings. `told`: property `vmq` and wire topic, `part`: property `vmq-part`."""
        entry = None
        try:
            if self._part is not None and not self._part.takes(told[1], told[0]):
                self._count("others_dropped")  # but the key that rode on it may be for what is ours
                self._owed.append(ack)
                return
            entry = self._forms.told.get(told)
            if entry is None:
                entry = self._admit(replica, told, message.retain, now)
                if entry is None:
                    self._owed.append(ack)
                    return
                if part is None and self._whole_at_once(entry, message.payload):
                    entry.acks.append(ack)
                    return
            if entry.state is not State.DONE:
                payload = message.payload
                entry.content = self.contents.take(entry.header, entry.content, replica, payload, part, now)
                if entry.state is State.LATE:
                    self._keep(entry)
            self._piece(entry, replica, ack)
        except _HeldOverflowError:
            self._count("held_overflow")
        except KeysError as error:
            self._refuse(replica, error, ack)
        if entry is not None and entry.state is State.WAITING:
            self._await(entry)

    def _refuse(self, replica: str, error: KeysError, ack: Ack) -> None:
        self._count(f"refused_{type(error).__name__}", replica)
        self._owed.append(ack)

    def _whole_at_once(self, entry: Form, payload: bytes) -> bool:
        """Whether a form that is new here is whole with its first piece, and the only one of its publication: as most
        are. Then it is queued; there is nobody whom it could end, or who waits for it."""
        if entry.vouchers is not None or entry.old or len(self._forms.of(entry.publication)) > 1:
            return False
        if not self.contents.whole(entry.header, payload):
            return False
        entry.content = payload
        if self._missing(entry) is not None:
            return False
        self._met.add(entry.header.publisher)
        self._queue(entry)
        return True

    def _follow(self) -> None:
        """Views may have changed: keys that came before theirs are looked at."""
        for key_id in self.keyring.follow(self.figures):
            self._wake(key_id)

    def _admit(self, replica: str, told: tuple[str, str], retained: bool, now: float) -> Form | None:
        """A verified header as entry; None when the publication is not wanted. Raises KeysError, _HeldOverflowError."""
        header, frame, scope, needed = self._admission.publication(*told, now)
        topic, publication = told[1], (header.publisher, header.sequence)
        if self.seen.has(*publication, topic, header.retain) or publication in self._stale:
            self._count("duplicates_dropped")
            return None
        if header.deadline_ms and header.deadline_ms < now * 1000:
            self._count("expired")
            return None
        if len(self._forms.of(publication)) >= VARIANTS_MAX:
            self._count("variants_dropped")
            return None
        if needed > 1:
            self._vouching.check_room(replica)
        if len(self._waiting) + len(self._ready) >= HELD_MAX:
            raise _HeldOverflowError
        entry = Form(told, header, frame, topic, scope, now, publication, needed)
        replayed = retained and header.retain
        entry.old = not replayed and abs(now * 1000 - header.time_ms) > FRESH_MS
        self._forms.add(entry)
        if needed > 1:
            self._vouching.begin(entry, replica)
        return entry

    def _piece(self, entry: Form, replica: str, ack: Ack) -> None:
        """A replica brought it: keep the acknowledgement as long as it is owed."""
        self._vouching.brought(entry, replica)
        other = self._forms.other_whole(entry)
        if entry.state is State.DONE and other is None:
            self._count("duplicates_dropped")
            self._owed.append(ack)
            return
        # If another form of this publication is whole, that one's write answers for this piece too.
        (other or entry).acks.append(ack)
        if entry.state in (State.WAITING, State.LATE):
            self._complete(entry)
        if entry.state in (State.LATE, State.DONE):
            # Its incomplete form is on disk and this piece did not make it whole, or another form is on disk.
            self._owed += entry.acks
            entry.acks = []

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
        other = self._forms.other_whole(entry)
        if other is None:
            self._settle(entry, None)
        else:  # it is on its way to the disk, and so one row is: what was sealed anew is the same publication
            other.acks += entry.acks
            entry.acks = []
            self._forget_waiting(entry)
            self._finish(entry)

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
        if late and self.seen.has(*entry.publication, entry.topic, header.retain):
            self._finish(entry)  # another form of it was written meanwhile
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
        """It waits for the disk."""
        # Held here, since the keyring may forget a key before this is written.
        entry.material = self.keyring.material(entry.header.key_id)
        entry.state = State.READY
        self._ready.append(entry)

    def _too_old(self, entry: Form) -> bool:
        """Whether it could be a replay: docs/protocol.md §5.2, an old publication of somebody who was never heard."""
        publisher = entry.header.publisher
        return entry.old and publisher not in self._met and not self.seen.knows(publisher)

    def _end_other_forms(self, entry: Form) -> list[Ack]:
        """One form of the publication is whole: those that still wait end, and leave what they owe."""
        acks: list[Ack] = []
        for other in list(self._forms.of(entry.publication)):
            if other is not entry and other.state is State.WAITING:
                acks += other.acks
                other.acks = []
                self._forget_waiting(other)
                self._finish(other)
        return acks

    def _forget_waiting(self, entry: Form) -> None:
        if self._waiting.pop(id(entry), None) is None and not self._late.drop(entry):
            return  # whole with its first piece: it never waited
        self._forget_key(entry)

    def _forget_key(self, entry: Form) -> None:
        waiting = self._by_key.get(entry.header.key_id)
        if waiting is not None:
            waiting.pop(id(entry), None)
            if not waiting:
                del self._by_key[entry.header.key_id]

    def _finish(self, entry: Form) -> None:
        self._vouching.release(entry)
        self._forms.end(entry)

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
        self._forms.forget()

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
            if entry.reason is not None and self._revives(entry):
                entry.reason = None
                entry.material = self.keyring.material(entry.header.key_id)
        keys = {entry.header.key_id: entry.material for entry in entries if entry.material is not None}
        return Group(tuple(map(record_of, entries)), keys, tuple(entries))

    def _revives(self, entry: Form) -> bool:
        """Whether what was missing of it came while it stood in the queue, and no other form is the row."""
        return (
            not entry.stale
            and self._missing(entry) is None
            and self._forms.other_whole(entry) is None
            and not self.seen.has(*entry.publication, entry.topic, entry.header.retain)
            and not self._too_old(entry)
        )

    def written(self, group: Group) -> list[Ack]:
        """The group is on disk: what may be acknowledged now."""
        acks: list[Ack] = []
        spooled = 0
        for entry in group.entries:
            if entry.reason is None:
                header = entry.header
                self.seen.mark(header.publisher, header.sequence, entry.topic, header.retain)
                spooled += 1
                if len(self._forms.of(entry.publication)) > 1:
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
        self._forms.leave(entry)
        if entry.header.key_id != NO_KEY:
            self._by_key.setdefault(entry.header.key_id, {})[id(entry)] = entry
        self._keep(entry)

    def _keep(self, entry: Form) -> None:
        """A late form came, or has grown."""
        for oldest in self._late.keep(entry):
            self._forget_key(oldest)
            self._finish(oldest)

    def _count(self, figure: str, replica: str = "", amount: int = 1) -> None:
        self.figures[figure, replica] += amount
