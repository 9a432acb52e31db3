"""Retained publications of this gateway: the latest of each topic, sealed anew when its seal ends, and repeated
(docs/protocol.md §5.3).

Replicas drop a retained publication with its epoch, bump, view or tree, since a later subscriber could not open it. So
a publication that its scope now seals otherwise is sealed once more, as a *snapshot*: under its number, in no chain,
so that it overtakes nothing. A publication a replica may still get goes as a publication first (`snapshots`). A
tombstone is kept like a value until the epoch of its first sealing is dead, and with it all sealings of the cleared
value: restarted replicas would otherwise believe an old value. A restarted replica gets all of them as last sealed;
after a restart of this gateway, sealed anew.

Bounded in memory and in rows (`Keep`), from which a restart goes on. Fair by owner, the local user (or address), and
by
client: of the owner with most, the client with most loses its oldest. `publisher` seals and sends. Others'
publications on these topics are unknown here unless the node reports them (`take_delivery`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from bridge.base import NameWeights
from bridge.contract import Count, Deferrals, Deliver, Effect, Keep, Numbered, Publication, Wire, packed, unpacked
from bridge.document import RegionView
from bridge.publisher.data_keys import LiveKey
from bridge.publisher.entry import Entry, has_enough
from bridge.publisher.resealing import AWAY_S, is_lacked, is_on_its_way
from bridge.publisher.sealing import Sealer
from keys.errors import KeysError
from keys.frames import Reader, number, sized

RETAINED_OWN_MAX = 10_000  # topics; who has most loses the longest untouched, which will not be sealed anew
RETAINED_OWN_BYTES_MAX = 64 << 20  # clear and sealed; the same
ENTRY_BYTES = 256  # what a topic costs beside its contents, when owners are compared
EXPECTED_MAX = 10_000  # topics on their way to the disk whose owner is remembered
RETELL_BURST = 8  # times that a replica whose link comes up is told everything at once ...
RETELL_EVERY_S = 60.0  # ... and then once a minute, the others later
BETWEEN = "\0"  # stands between owner and client id; neither contains it
OWNED = 2  # bit of a row's flags: its owner follows; rows of before have none
ROW = b"o"  # before the topic in the names of rows
LOOK_AGAIN_S = 3.0  # how often whether what was on its way at its epoch's end has arrived
FORMER = "former"  # the seal of what a former process sealed, or replicas may take for a repetition: a snapshot follows


@dataclass(slots=True)
class KeptRetained:
    """A topic's publication and its last sealing. `seal` names certificate, key, views and tree (`Sealer.seal_for`),
    empty if never sealed. `protected`: never to go in clear. `epoch` is the epoch of its first sealing, -1 before.
    """

    sequence: int
    publication: Publication
    protected: bool
    seal: str = ""
    wire: Wire | None = field(default=None, repr=False)
    key: LiveKey | None = None
    epoch: int = -1
    owner: str = ""

    @property
    def size(self) -> int:
        return len(self.publication.payload) + (len(self.wire.payload) if self.wire else 0)

    def is_over(self, oldest: int, now: float) -> bool:
        """Returns True if the publication has expired, or is a tombstone in whose place nothing can come back."""
        of = self.publication
        if not of.payload and 0 <= self.epoch < oldest:
            return True
        return of.expiry_s is not None and of.time_ms + of.expiry_s * 1000 < now * 1000

    def row(self) -> bytes:
        """Encodes a row; a publication fitting no record was never sealed."""
        content = packed(self.publication.topic, [Numbered(self.sequence, self.publication)]).payload
        parts = [number(self.sequence, 8), number(self.protected | OWNED, 1), number(self.epoch + 1, 8)]
        return b"".join([*parts, sized(self.owner.encode()), content])


class OwnRetained:
    """The latest retained publication of this gateway on each clear topic."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptRetained] = {}
        self._weights = NameWeights(lambda topic: self._kept[topic].owner.split(BETWEEN))
        self._expected: OrderedDict[str, str] = OrderedDict()  # owners by topic
        self._bytes = 0
        self.retold: Deferrals[str] = Deferrals(RETELL_BURST, RETELL_EVERY_S)  # by replica of our region
        self.changed: dict[str, None] = {}  # topics whose rows are to be written

    def expect(self, topic: str, owner: str, client: str = "") -> None:
        """Notes the owner and the client of a retained publication on its way: outbox entries name neither."""
        owner = f"{owner}{BETWEEN}{client}"
        self._expected[topic] = owner
        self._expected.move_to_end(topic)
        if len(self._expected) > EXPECTED_MAX:
            self._expected.popitem(last=False)

    def take_published(self, sequence: int, publication: Publication, protected: bool) -> list[Effect]:
        """Remembers a retained publication; `protected`: its scope is sealed."""
        known = self._kept.get(publication.topic)
        if known is not None and known.sequence >= sequence:
            return []
        self._drop_topic(publication.topic)
        owner = self._expected.pop(publication.topic, publication.owner)
        self._add_kept(KeptRetained(sequence, publication, protected, owner=owner))
        self.changed[publication.topic] = None
        return self._shrink()

    def _add_kept(self, kept: KeptRetained) -> None:
        topic = kept.publication.topic
        self._kept[topic] = kept
        self._weights.set_weight(topic, kept.size + ENTRY_BYTES)
        self._bytes += kept.size

    def note_sealing(self, entry: Entry, sealer: Sealer, now: float) -> list[Effect]:
        """Notes the new sealing of a retained publication."""
        kept = self._kept.get(entry.publication.topic)
        if kept is None or kept.sequence != entry.sequence:
            return []
        before = kept.size
        by_former = kept.seal == FORMER or (not kept.seal and kept.epoch >= 0)
        if kept.epoch < 0 and entry.name is not None:
            kept.epoch = entry.name.epoch
        if entry.is_snapshot or not (entry.had_enough or by_former):
            kept.seal = sealer.seal_of(entry)
        else:
            kept.seal = FORMER
            sealer.ask_review(now + LOOK_AGAIN_S)
        kept.wire, kept.key = entry.wire, entry.key
        self.changed[entry.publication.topic] = None
        self._bytes += kept.size - before
        self._weights.set_weight(kept.publication.topic, kept.size + ENTRY_BYTES)
        return self._shrink()

    def to_retell(
        self, peer: str, seal_for: Callable[[KeptRetained], str], entries: Mapping[int, Entry], now: float
    ) -> list[KeptRetained]:
        """Returns publications a replica may have lost, in order of sequence, if their sealing is current and the
        outbox (`entries`) does not hold them for the replica anyway. `retold` delays a replica asking too often.
        """
        if not self._kept or not self.retold.spend_one(peer, now):
            return []
        fits = [kept for kept in self._kept.values() if kept.wire is not None and kept.seal == seal_for(kept)]
        waits = {e.sequence for kept in fits if (e := entries.get(kept.sequence)) and peer not in e.acked}
        return sorted((kept for kept in fits if kept.sequence not in waits), key=lambda kept: kept.sequence)

    def take_delivery(self, effect: Deliver) -> Deliver:
        """Returns another member's delivery, without its retain flag if the publication here is newer; otherwise drops
        the latter.
        """
        of, known = effect.publication, self._kept.get(effect.publication.topic)
        if not of.retain or known is None:
            return effect
        if known.publication.time_ms > of.time_ms:
            return replace(effect, publication=replace(of, retain=False))
        self.overtaken(of.topic, of.time_ms)
        return effect

    def overtaken(self, topic: str, time_ms: int) -> None:
        """Drops an older publication on the topic after another member published at `time_ms`: it would bring back an
        old value.
        """
        known = self._kept.get(topic)
        if known is not None and known.publication.time_ms <= time_ms:
            self._drop_topic(topic)

    def due_retained(self, seal_for: Callable[[KeptRetained], str], oldest: int, now: float) -> list[KeptRetained]:
        """Returns publications to seal anew, since their present sealing would differ. `seal_for` gives that sealing,
        empty for none now. `oldest` is the first epoch that is not dead. A publication never sealed is in the outbox.
        """
        due = []
        for kept in list(self._kept.values()):
            if kept.is_over(oldest, now):
                self._drop_topic(kept.publication.topic)
            elif kept.seal and (seal := seal_for(kept)) and seal != kept.seal:
                due.append(kept)
        return sorted(due, key=lambda kept: kept.sequence)

    def _shrink(self) -> list[Effect]:
        gone = 0
        while len(self._kept) > RETAINED_OWN_MAX or self._bytes > RETAINED_OWN_BYTES_MAX:
            self._drop_topic(self._weights.heaviest())
            gone += 1
        return [Count("retained_own_dropped", gone)] if gone else []

    def _drop_topic(self, topic: str) -> None:
        known = self._kept.get(topic)
        if known is not None:
            self._weights.drop_name(topic)
            del self._kept[topic]
            self._bytes -= known.size
            self.changed[topic] = None

    # ------------------------------------------------------------------------------------------- over restarts

    def changed_rows(self) -> list[Effect]:
        """Returns the rows changed since the last call."""
        changed, self.changed = self.changed, {}
        rows = tuple((ROW + topic.encode(), _row(self._kept.get(topic))) for topic in changed)
        return [Keep(rows)] if rows else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]], is_left: Callable[[int], bool]) -> None:
        """Restores the rows of a former process; skips foreign and damaged rows. Publications in the outbox
        (`is_left_on_disk`) come from there.
        """
        found = []
        for name, row in rows:
            if name[:1] == ROW:
                with suppress(KeysError):
                    found.append(_kept(row))
        for kept in sorted(found, key=lambda kept: kept.sequence):
            if is_left(kept.sequence) or kept.epoch < 0:
                kept.seal = ""
            if kept.publication.topic not in self._kept:
                self._add_kept(kept)


def snapshots(
    due: Iterable[KeptRetained], entries: Mapping[int, Entry], sealer: Sealer, view: RegionView, now: float
) -> tuple[list[Entry], list[int], list[Effect]]:
    """Returns snapshots to seal as entries of their own, sequences of existing entries to seal anew, and counts.

    A publication a replica may still get as such becomes no snapshot yet: readers would get it late, or never live.
    """
    made, again = [], []
    for kept in due:
        entry, secret = entries.get(kept.sequence), sealer.secret_for(kept.publication.topic)
        if entry is None and secret is not None:
            made.append(Entry(kept.sequence, kept.publication, secret, 0, now, is_snapshot=True))
        elif entry is not None and entry.wire is not None:
            goes_on = not has_enough(entry, view) or is_lacked(entry, view, AWAY_S, now)
            is_anew = kept.seal == FORMER and sealer.is_current(entry)
            stays = not entry.is_snapshot and (goes_on if is_anew else is_on_its_way(entry, sealer, view, now))
            entry.is_snapshot = entry.is_snapshot or not (goes_on or stays)
            if not stays:
                again.append(kept.sequence)
            if not entry.is_snapshot:
                sealer.ask_review(now + LOOK_AGAIN_S)
    count = len(made) + len(again)
    return made, again, [Count("retained_resealed", count)] if count else []


def _row(kept: KeptRetained | None) -> bytes | None:
    if kept is None:
        return None
    try:
        return kept.row()
    except KeysError:  # it fits no record, and so was refused
        return None


def _kept(row: bytes) -> KeptRetained:
    """Decodes a row. Raises a keys error."""
    reader = Reader(row)
    sequence, flags, epoch = reader.number(8), reader.number(1), reader.number(8) - 1
    owner = reader.text() if flags & OWNED else ""
    record = next(unpacked(reader.take_rest(), sequence))
    if isinstance(record, KeysError):
        raise record
    return KeptRetained(sequence, record.publication, bool(flags & ~OWNED), FORMER, epoch=epoch, owner=owner)
