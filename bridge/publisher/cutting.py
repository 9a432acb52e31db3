"""Division of a stored batch into parts, each a batch with the number of its first record.

A batch is halved until its parts fit if brokers refuse it as too large without an announced bound. Replicas announce
their largest packet, and batches are made for that (`gateway.overlay`). A hosted broker may have an unannounced bound,
or lower a bound below stored batches. A batch is also divided if its records no longer belong to one scope, or may not
all go (`placing`). On disk the batch stays one row until its last part is gone. The parts are on disk, too (`Keep`):
after a restart the batch is cut in the same way, since readers know a batch by its number. Also on disk are the new
scope of a whole QoS 2 batch, which stays there once sealed, since readers know the batch there; a mark for each plain
chain; and a mark for records that a plain scope took and a sealed scope has now: they stay protected. `publisher`
handles refusals. A single record that no replica takes waits, and is offered again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.contract import Keep, Numbered, Publication, numbers_of, packed, unpacked
from bridge.document import RegionView, ScopeSecret
from bridge.publisher.fleeting import Fleeting
from bridge.publisher.placing import Part
from bridge.publisher.predecessors import Predecessors
from bridge.publisher.residents import Residents, Standing
from bridge.publisher.sealing import Entry
from bridge.publisher.windows import Lanes
from keys.envelope import Mode
from keys.errors import KeysError
from keys.frames import Reader, number, text

ROW = b"p"  # before the number of the row in the names of rows
_COUNT, _NUMBER = 2, 8  # bytes
_PLAIN = 0x8000  # of the count, 1,024 at most; not in rows of before: what does not say so counts as sealed

_Told: TypeAlias = tuple[str, bool, tuple[int, ...]]  # of a part: its chain, whether it is plain, its records' numbers


def may_be_cut(entry: Entry, view: RegionView, up: Collection[str]) -> bool:
    """Returns True if no reader can have the batch: a reader that combined it from one broker and others' shares would
    get its records again. A replica that is away and did not refuse counts as without the batch, except for QoS 2.
    Refusals by at most f replicas may be a lie, told while the links of all others are cut.
    """
    others = set(view.members) - entry.too_large_for
    if len(view.members) - len(others) <= view.faults:
        return False
    may_have_it = others if entry.publication.qos == 2 else others.intersection(up)
    return entry.publication.records > 1 and not entry.acked and not may_have_it


class Cuts:
    """The divided batches of one gateway. `entries` holds all entries in memory by number, `young` the ones before the
    stragglers' bound.
    """

    def __init__(
        self,
        entries: dict[int, Entry],
        young: dict[int, None],
        residents: Residents,
        lanes: Lanes,
        predecessors: Predecessors,
        fleeting: Fleeting,
    ) -> None:
        self._entries, self._young, self._residents, self._lanes = entries, young, residents, lanes
        self._predecessors, self._fleeting = predecessors, fleeting
        self._row_of: dict[int, int] = {}  # by part: the number of the row on disk
        self._parts: dict[int, dict[int, _Told]] = {}  # by row, and by part that is not gone
        self._former: dict[int, list[_Told]] = {}  # by row: those that a former life left
        self.changed: dict[int, None] = {}  # rows whose parts are to be written

    def forget_peer(self, peer: str) -> None:
        """Forgets a replica's refusals: on a new link it may take larger packets."""
        for entry in self._entries.values():
            entry.too_large_for.discard(peer)

    def too_large(self, peer: str, entry: Entry, view: RegionView) -> bool:
        """Takes a replica's refusal of a too large batch. Returns True if two parts replace the batch now."""
        entry.too_large_for.add(peer)
        if entry.key is not None:  # which rode on it
            entry.key.forget_peer(peer)
        if not may_be_cut(entry, view, [peer for peer, _ in self._lanes]):
            return False
        of = unpacked(entry.publication.payload, entry.sequence)
        numbered = [each for each in of if isinstance(each, Numbered)]
        middle = len(numbered) // 2
        if middle:
            self.divide([(entry, [(entry.secret, numbered[:middle]), (entry.secret, numbered[middle:])])])
        return middle > 0

    def stored(self, entry: Entry, home: Callable[[Publication], ScopeSecret]) -> list[Entry]:
        """Returns the entry that was read, or its parts left by a former process. `home` gives the scope of a batch
        from its topic and a mark for a plain scope.
        """
        found = self._former.pop(entry.sequence, None)
        if found is None:
            return [entry]
        if not entry.publication.records:
            entry.secret = home(replace(entry.publication, in_clear=found[0][1]))
            self._note(entry, entry.sequence)
            return [entry]
        of = {e.number: e for e in unpacked(entry.publication.payload, entry.sequence) if isinstance(e, Numbered)}
        parts: list[Part] = []
        for chain, plain, numbers in found:
            records = [of[n] for n in numbers if n in of]
            if records:
                parts.append((home(replace(entry.publication, topic=chain, in_clear=plain)), records))
        if parts:
            self._parts[entry.sequence] = {}  # it is in parts, be it in one that is left
        return self.split(entry, parts) or [entry]

    def split(self, entry: Entry, parts: Sequence[Part]) -> list[Entry]:
        """Makes entries from these parts of an entry; none is in memory yet. The part with the entry's number is the
        entry itself.
        """
        row, before, previous = self._row_of.get(entry.sequence, entry.sequence), entry.secret, entry.previous
        took_plain = entry.publication.in_clear
        made: list[Entry] = []
        told = row in self._parts  # whether it is on disk which parts there are
        for secret, records in parts:
            each, moves = entry, secret.clear_filter != before.clear_filter
            if records and records[0].number != entry.sequence:
                each = Entry(records[0].number, entry.publication, secret, "", previous, entry.born)
            each.secret = secret
            if moves:
                each.previous = 0
                told |= each.publication.qos == 2 and each.publication.records > 0
            if secret.scope.filter and (moves or len(parts) > 1):  # other ones than the disk says follow each other
                self._predecessors.joins(secret.clear_filter, self._entries)
            if moves and each is entry and before.scope.filter:
                self._predecessors.left(entry, before.clear_filter, previous)
            if records and entry.publication.records:
                each.publication = packed(secret.clear_filter, records)
            made.append(each)
        if made != [entry] or told or (took_plain and not _is_plain(entry)):
            for each in made:
                self._note(each, row)
        return made

    def placed(self, entry: Entry) -> None:
        """Notes the entry's final scope. Records taken by a plain scope are protected from now on if this scope is
        sealed.
        """
        if _is_plain(entry) or entry.is_snapshot or not (entry.publication.in_clear or entry.sequence in self._row_of):
            return
        row = self._row_of.get(entry.sequence, entry.sequence)
        if self._parts.get(row, {}).get(entry.sequence, ("", True, ()))[1]:
            self._note(entry, row)

    def _note(self, entry: Entry, row: int) -> None:
        """Notes for the disk the entry's part of a row, with its chain."""
        if entry.publication.qos:
            self._row_of[entry.sequence] = row
            numbers = numbers_of(entry.publication, entry.sequence)
            self._parts.setdefault(row, {})[entry.sequence] = (entry.chain, _is_plain(entry), numbers)
            self.changed[row] = None

    def divide(self, divided: Sequence[tuple[Entry, Sequence[Part]]]) -> None:
        """Replaces these entries by their parts, which go to all replicas."""
        self._lanes.withdraw({entry.sequence for entry, _ in divided})
        back: list[tuple[int, str]] = []
        for entry, parts in divided:
            self._residents.remove(entry)
            self._fleeting.remove(entry.sequence)
            for each in self.split(entry, parts):
                each.wire = each.name = each.key = None
                each.standing = Standing.FRESH
                each.acked.clear()
                each.too_large_for.clear()
                self._entries[each.sequence] = each
                self._young.setdefault(each.sequence)
                self._residents.add(each)
                if not each.publication.qos:
                    self._fleeting.add(each.sequence, each.size)
                back.append((each.sequence, each.chain))
        if divided:
            self._predecessors.link(self._entries)
            self._lanes.requeue(back, lambda _peer, _number: True)

    def rows(self, gone: Iterable[int]) -> tuple[int, ...]:
        """Returns the rows to forget now that these entries are gone from memory."""
        found: list[int] = []
        for sequence in gone:
            row = self._row_of.pop(sequence, None)
            if row is None:
                found.append(sequence)
                continue
            self.changed[row] = None
            self._parts[row].pop(sequence, None)
            if not self._parts[row]:
                del self._parts[row]
                found.append(row)
        return tuple(found)

    # ------------------------------------------------------------------------------------------- over restarts

    def changes(self) -> list[Keep]:
        """Returns the rows changed since the last call."""
        changed, self.changed = self.changed, {}
        rows = tuple((ROW + number(row, _NUMBER), _told(self._parts.get(row))) for row in changed)
        return [Keep(rows)] if rows else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the rows of a former process; skips damaged rows."""
        for name, told in rows:
            if name[:1] == ROW and len(name) == 1 + _NUMBER and (parts := _read(told)):
                self._former[int.from_bytes(name[1:])] = parts

    def all_read(self) -> None:
        """Drops rows of a former process whose batches were not on disk: everything left there is in memory now."""
        self.changed.update(dict.fromkeys(self._former))
        self._former.clear()


def _is_plain(entry: Entry) -> bool:
    return entry.secret.scope.mode is Mode.PLAIN


def _told(parts: Mapping[int, _Told] | None) -> bytes | None:
    if parts is None:
        return None
    told: list[bytes] = []
    for chain, plain, numbers in parts.values():
        count = number(len(numbers) | (_PLAIN if plain else 0), _COUNT)
        told += [text(chain), count, *(number(each, _NUMBER) for each in numbers)]
    return b"".join(told)


def _read(row: bytes) -> list[_Told]:
    """Decodes a row; returns an empty list for a damaged one."""
    reader, found = Reader(row), list[_Told]()
    try:
        while reader.position < len(row):
            chain, count = reader.text(), reader.number(_COUNT)
            numbers = tuple([reader.number(_NUMBER) for _ in range(count & ~_PLAIN)])
            found.append((chain, bool(count & _PLAIN), numbers))
    except KeysError:
        return []
    return found
