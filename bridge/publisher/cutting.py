"""Division of a stored batch into parts, each a batch with the number of its first record.

A batch is halved until its parts fit if brokers refuse it as too large without an announced bound. Replicas announce
their largest packet, and batches are made for that (`gateway.overlay`). A hosted broker may have an unannounced bound,
or lower a bound below stored batches. A batch is also divided if its records no longer belong to a scope, or may not
all go (`scope_placement`). On disk the batch stays a single row until its last part is gone. The parts are on disk, too
(`Keep`): after a restart the batch is cut in the same way, since readers know a batch by its number. Also on disk are
the new scope of a whole QoS 2 batch, which stays there once sealed, since readers know the batch there; a mark for
each plain chain; and a mark for records a plain scope took and a sealed scope has now: they stay protected.
`publisher` handles refusals. A single record no replica takes waits, and is offered again.

`Predecessors` corrects the predecessor of an entry where the one on disk no longer holds. The disk names the entry
stored before each entry, in the chain of that time. That one may since have been dropped unsent, or be in another
scope's chain: subscribers would wait in vain. Entries of another scope may also have come between. Dropped and moved
entries are on disk (`Keep`): the next process would otherwise name entries no replica ever gets. A row stands for a
run of dropped entries, since only the next entry of the chain names one. An unstored entry may name one as well, but
does not outlive the process.

`OwnRows` gathers all rows of the publisher side that outlive its process beside the outbox,
like the reader's (`kept`); each module defines its rows, the shell has the disk.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.contract import Effect, Keep, Numbered, Publication, numbers_of, packed, unpacked
from bridge.document import RegionView, ScopeSecret
from bridge.publisher.entry import ENTRY, Entry, EntryTurn
from bridge.publisher.former_scopes import FormerScopes
from bridge.publisher.own_retained import OwnRetained
from bridge.publisher.residents import Fleeting, Residents
from bridge.publisher.scope_placement import Part
from bridge.publisher.sealed_before import SealedBefore
from bridge.publisher.windows import Lanes
from keys.envelope import Mode
from keys.errors import KeysError
from keys.frames import Reader, number, text

ROW = b"p"  # before the number of the row in the names of rows
_COUNT, _NUMBER = 2, 8  # bytes
_PLAIN = 0x8000  # of the count, 1,024 at most; not in rows of before: what does not say so counts as sealed

_Told: TypeAlias = tuple[str, bool, tuple[int, ...]]  # of a part: its chain, whether it is plain, its records' numbers
DROPPED_MAX = 65_536  # entries that were dropped or have left a chain, with rows, for what follows; the oldest go
DROPPED_ROW = b"d"  # in the names of rows: before the number, and the chain's name if it has left that one only


def may_be_cut(entry: Entry, view: RegionView, up: Collection[str]) -> bool:
    """Returns True if no reader can have the batch: a reader that combined it from a broker and others' shares would
    get its records again. A replica that is away and did not refuse counts as without the batch, except for QoS 2.
    Refusals by at most f replicas may be a lie, told while the links of all others are cut.
    """
    others = set(view.members) - entry.too_large_for
    if len(view.members) - len(others) <= view.faults:
        return False
    may_have_it = others if entry.publication.qos == 2 else others.intersection(up)
    return entry.publication.records > 1 and not entry.acked and not may_have_it


class Cuts:
    """The divided batches of a gateway. `entries` holds all entries in memory by number, `young` the ones before the
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
            self._note_part(entry, entry.sequence)
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
            if records[0].number != entry.sequence:
                each = Entry(records[0].number, entry.publication, secret, previous, entry.born)
            each.secret = secret
            if moves:
                each.previous = 0
                told |= each.publication.qos == 2 and each.publication.records > 0
            if secret.scope.filter:  # other ones than the disk says may follow each other
                self._predecessors.joins(secret.clear_filter, self._entries)
            if entry.publication.records:
                each.publication = packed(secret.clear_filter, records)
            made.append(each)
        if before.scope.filter and entry.chain != before.clear_filter:
            self._predecessors.left_chain(entry, before.clear_filter, previous)
        if made != [entry] or told or (took_plain and not _is_plain(entry)):
            for each in made:
                self._note_part(each, row)
        return made

    def placed(self, entry: Entry) -> None:
        """Notes the entry's final scope. Records taken by a plain scope are protected from now on if this scope is
        sealed.
        """
        if _is_plain(entry) or entry.is_snapshot or not (entry.publication.in_clear or entry.sequence in self._row_of):
            return
        row = self._row_of.get(entry.sequence, entry.sequence)
        told = self._parts.get(row, {}).get(entry.sequence)
        if told is None or told[1]:
            self._note_part(entry, row)

    def _note_part(self, entry: Entry, row: int) -> None:
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
            self._residents.remove_entry(entry)
            self._fleeting.remove_entry(entry.sequence)
            for each in self.split(entry, parts):
                each.wire = each.name = each.key = None
                each.standing = ENTRY.after((EntryTurn.UNSEALED, each.standing))
                each.acked.clear()
                each.too_large_for.clear()
                self._entries[each.sequence] = each
                self._young.setdefault(each.sequence)
                self._residents.add_entry(each)
                if not each.publication.qos:
                    self._fleeting.add_entry(each.sequence, each.size, entry.publication.owner)
                back.append((each.sequence, each.chain))
        if divided:
            self._predecessors.link_chains(self._entries)
            self._lanes.requeue(back, lambda _peer, _number: True)

    def rows_of_gone(self, gone: Iterable[int]) -> tuple[int, ...]:
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

    def changed_rows(self) -> list[Keep]:
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


class OwnRows:
    """The rows of all parts of a publisher. `entries` are the numbers of entries in memory."""

    def __init__(
        self,
        entries: Collection[int],
        retained: OwnRetained,
        predecessors: Predecessors,
        cuts: Cuts,
        scopes: FormerScopes,
        sealed: SealedBefore,
    ) -> None:
        self._entries, self._cuts, self._sealed = entries, cuts, sealed
        self._others, self._scopes = (predecessors, cuts, scopes, sealed), scopes
        self._noting = retained, predecessors, cuts, sealed

    def changed_rows(self) -> list[Effect]:
        """Returns the rows changed since the last call."""
        found: list[Effect] = list(self._scopes.changed_rows())
        for each in self._noting:
            if each.changed:  # asked after every event; as a rule nothing did
                found += each.changed_rows()
        return found

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the rows of a former process, except retained publications."""
        found = tuple(rows)
        for each in self._others:
            each.restore(found)

    def all_read(self) -> None:
        """Drops rows without entries after the last page: everything a former process left on disk has come."""
        self._cuts.all_read()
        self._sealed.all_read(self._entries)


class Predecessors:
    """The corrected predecessors of a gateway's entries."""

    def __init__(self) -> None:
        self._before: OrderedDict[bytes, int] = OrderedDict()  # number, chain -> the one before it that is there
        self.changed: dict[bytes, bytes | None] = {}  # rows to be written
        self._last: dict[str, int] = {}  # of chains into which something came from others: what came last

    def predecessor_of(self, entry: Entry) -> int:
        """Returns the predecessor an entry names; an earlier one may have been dropped later."""
        return self._before_in(entry.chain, entry.previous)

    def _before_in(self, chain: str, previous: int) -> int:
        name = chain.encode()
        while (before := self._known(previous, name)) is not None:
            previous = before
        return previous

    def _known(self, previous: int, name: bytes) -> int | None:
        if not self._before:  # as a rule
            return None
        key = number(previous, 8)
        before = self._before.get(key)
        return self._before.get(key + name) if before is None else before

    def drop_entries(self, entries: Iterable[Entry]) -> None:
        """Notes unsent dropped entries. QoS 0 entries precede nothing; a snapshot's number went before."""
        for entry in entries:
            if not entry.publication.qos or entry.is_snapshot or entry.previous >= entry.sequence:
                continue
            self._put_row(number(entry.sequence, 8), self.predecessor_of(entry))
            if (before := number(entry.previous, 8)) in self._before:
                self._forget_row(before)

    def left_chain(self, entry: Entry, chain: str, before: int) -> None:
        """Notes that an entry moved from `chain`, where it followed `before`, to another chain."""
        if entry.publication.qos and before < entry.sequence:
            self._put_row(number(entry.sequence, 8) + chain.encode(), self._before_in(chain, before))
        came = number(entry.sequence, 8) + entry.chain.encode()
        if self._before.pop(came, None) is not None:
            self._forget_row(came)

    def _put_row(self, key: bytes, before: int) -> None:
        self._before[key] = before
        self.changed[key] = number(before, 8)
        while len(self._before) > DROPPED_MAX:
            self._forget_row(self._before.popitem(last=False)[0])

    def _forget_row(self, key: bytes) -> None:
        if self.changed.pop(key, None) is None:  # else it was never written
            self.changed[key] = None

    # ------------------------------------------------------------------------------------ what came from elsewhere

    def joins(self, chain: str, entries: Mapping[int, Entry]) -> None:
        """Notes that entries of another chain come into this one, behind its entries in memory."""
        if chain not in self._last:
            of = (e for e in entries.values() if e.chain == chain and e.publication.qos and not e.is_snapshot)
            self._last[chain] = max((e.sequence for e in of), default=0)

    def join_chain(self, entry: Entry) -> None:
        """Lets a new entry in memory follow the last one of such a chain, in place of the predecessor on disk."""
        last = self._last.get(entry.chain)
        if last is None or last >= entry.sequence:
            return
        entry.previous = max(entry.previous, last)
        if entry.publication.qos:
            self._last[entry.chain] = entry.sequence

    def link_chains(self, entries: Mapping[int, Entry]) -> None:
        """Links changed chains anew: each unsealed entry follows the entry before it."""
        lasts: dict[str, int] = {}
        for sequence in sorted(entries):
            entry = entries[sequence]
            if entry.is_snapshot or entry.chain not in self._last:
                continue
            if entry.wire is None:
                entry.previous = max(entry.previous, lasts.get(entry.chain, 0))
            if entry.publication.qos:
                lasts[entry.chain] = sequence
        for chain, last in lasts.items():
            self._last[chain] = max(last, self._last[chain])

    # ------------------------------------------------------------------------------------------- over restarts

    def changed_rows(self) -> list[Keep]:
        """Returns the rows changed since the last call."""
        changed, self.changed = self.changed, {}
        rows = tuple((DROPPED_ROW + key, row) for key, row in changed.items())
        return [Keep(rows)] if rows else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the rows of a former process; skips foreign and damaged rows."""
        found = [(name[1:], row) for name, row in rows if name[:1] == DROPPED_ROW and len(name) >= 9 and len(row) == 8]
        pairs = sorted((key, int.from_bytes(row)) for key, row in found)
        self._before.update((key, before) for key, before in pairs if before < int.from_bytes(key[:8]))
