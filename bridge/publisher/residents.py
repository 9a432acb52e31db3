"""Outbox entries in memory: their number by kind, the room for more, and how long each may stay.

The outbox may hold a million entries; memory holds some thousand. *Fresh* entries are still to be sealed, *sealed*
ones to be acknowledged by n - f replicas, *waiting* ones cannot be sealed now, *settled* ones are kept for stragglers
only. Each kind has its own bound, so that a scope without a key, or an absent replica, takes no room from active
entries. `publisher` and `windows` decide on sending; the shell reads entries from disk when there is room.

Three tables beside it bound what stays. `Ages` finds entries that are too old, by the message's expiry or the outbox's
own bound. `Fleeting` bounds QoS 0 entries, which are in memory only: without an uplink who has most loses its oldest.
`Repairable` keeps entries that every replica acknowledged: in modes `one` and `blocks` no replica has all of the
content, and for `REPAIR_S` others may lack pieces a bad replica was to carry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile

from bridge.base import Belongings
from bridge.contract import Count, Effect, Received, Send
from bridge.publisher.entry import ENTRY, Entry, EntryTurn, Standing
from bridge.wire import Answers, PullRequest
from bridge.wire import pieces as content
from keys.envelope import Mode
from keys.errors import NotAuthorised

RESIDENT_MAX = 8_192  # fresh and sealed entries; the shell leaves more on disk
RESIDENT_BYTES_MAX = 32 << 20  # of their topics and payloads; sealed, they are held twice
BACKLOG_PART = 2  # one in so many of both is for what was left on disk; the rest is for what is new
LEAD_MAX = 256
"""So many entries may one replica have acknowledged that n - f have not: it gets nothing new then. After `kill -9` they
are sealed anew, and replicas believe a new sealing of what they have seen only for recent sequences
(`budgets.RESEALED_MAX`)."""
WAITING_MAX = 16_384  # more of them stay on disk, where scopes that may go pass them
WAITING_BYTES_MAX = 32 << 20
QOS0_ENTRIES_MAX = 10_000  # they are in memory only; without an uplink who has most loses its oldest ...
QOS0_BYTES_MAX = 64 << 20  # ... as they do when they are larger together
REPAIR_S = 10.0  # for so long others may ask for pieces of what every replica acknowledged ...
REPAIR_BYTES_MAX = 64 << 20  # ... unless it is more than this
TOGETHER_S = 1.0  # what may go waits so long for others


class Residents:
    """Numbers and bytes of entries by standing."""

    def __init__(self) -> None:
        self._count, self._bytes = [0] * len(Standing), [0] * len(Standing)
        self._settled: dict[int, None] = {}  # the longest settled first
        self._lead: Counter[str] = Counter()  # by replica: what it acknowledged and too few others did

    def add_entry(self, entry: Entry) -> None:
        self._count[entry.standing] += 1
        self._bytes[entry.standing] += entry.size
        if entry.standing is Standing.SETTLED:
            self._settled[entry.sequence] = None
        if entry.standing is Standing.SEALED:
            for peer in entry.acked:
                self._lead[peer] += 1

    def remove_entry(self, entry: Entry) -> None:
        self._count[entry.standing] -= 1
        self._bytes[entry.standing] -= entry.size
        self._settled.pop(entry.sequence, None)
        if entry.standing is Standing.SEALED:
            for peer in entry.acked:
                self._lead[peer] -= 1

    def move(self, entry: Entry, turn: EntryTurn) -> None:
        """Moves an entry as the table of its life says."""
        standing = ENTRY.after((turn, entry.standing))
        if entry.standing is not standing:
            self.remove_entry(entry)
            entry.standing = standing
            self.add_entry(entry)

    def note_acknowledged(self, entry: Entry, peer: str) -> None:
        """Notes that a replica has the entry. Names are those of the home region's replicas, so there are few."""
        if peer not in entry.acked:
            entry.acked.add(peer)
            self._lead[peer] += entry.standing is Standing.SEALED

    def need_not(self, entry: Entry, peers: Iterable[str]) -> None:
        """Counts the entry as acknowledged by these replicas."""
        for peer in peers:
            self.note_acknowledged(entry, peer)

    def leads(self, peer: str) -> bool:
        """Returns True if a replica is so far ahead of the others that it gets nothing new."""
        return self._lead[peer] >= LEAD_MAX

    def lacked_by(self, peer: str) -> int:
        """Returns the number of sealed entries that too few replicas have and this replica lacks."""
        return self._count[Standing.SEALED] - self._lead[peer]

    @property
    def settled_count(self) -> int:
        """The number of entries that only stragglers lack."""
        return self._count[Standing.SETTLED]

    @property
    def settled_bytes(self) -> int:
        return self._bytes[Standing.SETTLED]

    @property
    def longest_settled(self) -> int:
        """The sequence of the entry settled for longest; there must be one."""
        return next(iter(self._settled))

    @property
    def _unsettled(self) -> tuple[int, int]:
        count, held, fresh, sealed = self._count, self._bytes, Standing.FRESH, Standing.SEALED
        return count[fresh] + count[sealed], held[fresh] + held[sealed]

    def room(self, is_draining: bool) -> tuple[int, int]:
        """Returns the number of entries, and of bytes, that may come; 0 or less: none. While nothing drains, half
        stays free for later new entries: entries left on disk must wait for all earlier ones.
        """
        part = 1 if is_draining else BACKLOG_PART
        count, held = self._unsettled
        return RESIDENT_MAX // part - count, RESIDENT_BYTES_MAX // part - held

    @property
    def waiting_full(self) -> bool:
        """True if so many entries wait in memory for a key or a right that others stay on disk."""
        count, held = self._count[Standing.WAITING], self._bytes[Standing.WAITING]
        return count >= WAITING_MAX or held >= WAITING_BYTES_MAX

    @property
    def wants_backlog(self) -> bool:
        """True if there is room for entries left on disk; new entries have the other half for themselves."""
        count, held = self._unsettled
        return count < RESIDENT_MAX // BACKLOG_PART and held < RESIDENT_BYTES_MAX // BACKLOG_PART


def first_lacking(entries: Iterable[Entry]) -> int:
    """Returns the first sequence that is not settled; if all are, the one after them, where the disk goes on."""
    last = 0
    lacking: list[int] = []
    for entry in entries:
        last = max(last, entry.sequence)
        if entry.standing is not Standing.SETTLED:
            lacking.append(entry.sequence)
    return min(lacking, default=last + 1)


class Ages:
    """The age limits of an outbox. An entry published longer than `max_age_s` ago is dropped instead of sent; None: no
    bound.
    """

    def __init__(self, max_age_s: float | None) -> None:
        self.max_age_s = max_age_s

    def expired(self, entries: Iterable[Entry], now: float) -> tuple[list[int], list[int]]:
        """Returns the sequences of entries past their message's expiry, and of other entries past the outbox's
        bound.
        """
        message, age = [], []
        for entry in entries:
            published = entry.publication.time_ms / 1000
            expiry_s = entry.publication.expiry_s
            if expiry_s is not None and now > published + expiry_s:
                message.append(entry.sequence)
            elif self.max_age_s is not None and now > entry.since_s + self.max_age_s:
                age.append(entry.sequence)
        return message, age

    def too_long(self, entries: Mapping[int, Entry], now: float) -> list[int]:
        """Returns the leading entries, in order of arrival, that were in memory for longer than the outbox's bound."""
        most_s = self.max_age_s
        if most_s is None:
            return []
        return [entry.sequence for entry in takewhile(lambda one: now > one.since_s + most_s, entries.values())]

    def first_at(self, entries: Mapping[int, Entry]) -> float | None:
        """Returns the time at which `too_long` finds its next entry."""
        first = next(iter(entries.values()), None)
        if first is None or self.max_age_s is None:
            return None
        return first.since_s + self.max_age_s + 0.001


class Fleeting:
    """Numbers of QoS 0 entries, which are in memory only, by owner: a local client, or "" for those who share batches.

    At most `most` entries, and `most_bytes` bytes, may be here. A longer entry than the average then counts as
    several.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._part_bytes = most, -(-most_bytes // most)
        self._held: dict[int, tuple[str, int]] = {}  # owner, and for how many it counts
        self._owned: Belongings[str, tuple[int, int]] = Belongings()
        self._parts = 0

    def __len__(self) -> int:
        return len(self._held)

    def add_entry(self, sequence: int, size: int, owner: str) -> None:
        parts = max(1, -(-size // self._part_bytes))
        self._held[sequence] = owner, parts
        self._parts += parts
        for part in range(parts):
            self._owned.add(owner, (sequence, part))

    def remove_entry(self, sequence: int) -> None:
        """Removes an entry, if it is here."""
        owner, parts = self._held.pop(sequence, ("", 0))
        self._parts -= parts
        for part in range(parts):
            self._owned.drop_thing(owner, (sequence, part))

    def excess(self) -> list[int]:
        """Removes entries beyond the bounds, and returns their numbers: the owner with most loses its oldest."""
        gone: list[int] = []
        while self._parts > self._most:
            sequence, _ = self._owned.oldest_of_most()
            gone.append(sequence)
            self.remove_entry(sequence)
        return gone


class Repairable:
    """Entries acknowledged by all replicas: the time at which each may go, ascending, and bytes."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[float, int]] = {}
        self._bytes = 0
        self.answers = Answers()

    def __len__(self) -> int:
        return len(self.kept)

    def keep_entry(self, entry: Entry, now: float) -> list[int] | None:
        """Keeps an entry for a while. Returns the sequences going early for it; None if it need not be kept."""
        if entry.header is None or entry.header.mode not in (Mode.ONE, Mode.BLOCKS):
            return None
        if entry.sequence in self.kept:
            return []
        size = sum(map(len, entry.pieces))
        self.kept[entry.sequence] = now + REPAIR_S, size
        self._bytes += size
        gone, left = [], self._bytes
        for sequence, (_, size) in self.kept.items():
            if left <= REPAIR_BYTES_MAX:
                break
            gone.append(sequence)
            left -= size
        return gone

    def forget_entry(self, sequence: int) -> None:
        self._bytes -= self.kept.pop(sequence, (0.0, 0))[1]

    def due_entries(self, now: float) -> list[int]:
        """Returns the leading sequences that may go."""
        return [sequence for sequence, _ in takewhile(lambda kept: kept[1][0] <= now, self.kept.items())]

    @property
    def next_deadline(self) -> float | None:
        """The time at which entries go together: each alone would wake the gateway once more for every batch."""
        first = next(iter(self.kept.values()), None)
        return None if first is None else first[0] + TOGETHER_S

    def answer_request(self, event: Received, request: PullRequest, entry: Entry | None, now: float) -> list[Effect]:
        """Answers a replica of the home region lacking pieces of an entry."""
        if entry is None or entry.wire is None or entry.header is None:
            return []
        if not content.has_parts(entry.header, request.parts, request.time_ms):
            return [Count("pulls_refused")]
        fits = request.parts and request.parts[-1] < len(entry.pieces)
        parts = content.enough(entry.header, request.parts if fits else range(len(entry.pieces)))
        pieces = {index: entry.pieces[index] for index in parts}
        given = self.answers.give(event.peer, request.name, entry.header.time_ms, pieces, now)
        if given is None:
            return [Count("pulls_refused")]
        return [Send(event.peer, entry.with_pieces(given)), Count("pulls_answered")]


def check_ours(ours: bool) -> None:
    """Raises NotAuthorised."""
    if not ours:
        raise NotAuthorised("a gateway has publications of its own only")
