"""Corrected predecessors of entries, where the predecessor on disk no longer holds.

The disk names the entry stored before each entry, in the chain of that time. The predecessor may since have been
dropped unsent, or be in another scope's chain: subscribers would wait in vain. Entries of another scope may also have
come between. Dropped and moved entries are on disk (`Keep`): the next process would otherwise name entries that no
replica ever gets. One row stands for a run of dropped entries, since only the next entry of the chain names one. An
unstored entry may name one as well, but does not outlive the process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from bridge.contract import Keep
from bridge.publisher.sealing import Entry
from keys.frames import number

DROPPED_MAX = 65_536  # entries that were dropped or have left a chain, with rows, for what follows; the oldest go
ROW = b"d"  # in the names of rows: before the number, and the chain's name if it has left that one only


class Predecessors:
    """The corrected predecessors of one gateway's entries."""

    def __init__(self) -> None:
        self._before: OrderedDict[bytes, int] = OrderedDict()  # number, chain -> the one before it that is there
        self.changed: dict[bytes, bytes | None] = {}  # rows to be written
        self._last: dict[str, int] = {}  # of chains into which something came from others: what came last

    def of(self, entry: Entry) -> int:
        """Returns the predecessor that an entry names; an earlier one may have been dropped later."""
        return self._before_in(entry.chain, entry.previous)

    def __getitem__(self, previous: int) -> int:
        """Returns the number that a follower of `previous` names instead, in any chain."""
        return self._before_in("", previous)

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

    def drop(self, entries: Iterable[Entry]) -> None:
        """Notes unsent dropped entries. QoS 0 entries precede nothing; a snapshot's number went before."""
        for entry in entries:
            if not entry.publication.qos or entry.is_snapshot or entry.previous >= entry.sequence:
                continue
            self._put(number(entry.sequence, 8), self.of(entry))
            if (before := number(entry.previous, 8)) in self._before:
                self._forget_row(before)

    def left(self, entry: Entry, chain: str, before: int) -> None:
        """Notes that an entry moved from `chain`, where it followed `before`, to another chain."""
        if entry.publication.qos and before < entry.sequence:
            self._put(number(entry.sequence, 8) + chain.encode(), self._before_in(chain, before))
        came = number(entry.sequence, 8) + entry.chain.encode()
        if self._before.pop(came, None) is not None:
            self._forget_row(came)

    def _put(self, key: bytes, before: int) -> None:
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

    def came(self, entry: Entry) -> None:
        """Lets a new entry in memory follow the last one of such a chain, in place of the predecessor on disk."""
        last = self._last.get(entry.chain)
        if last is None or last >= entry.sequence:
            return
        entry.previous = max(entry.previous, last)
        if entry.publication.qos:
            self._last[entry.chain] = entry.sequence

    def link(self, entries: Mapping[int, Entry]) -> None:
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

    def changes(self) -> list[Keep]:
        """Returns the rows changed since the last call."""
        changed, self.changed = self.changed, {}
        rows = tuple((ROW + key, row) for key, row in changed.items())
        return [Keep(rows)] if rows else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the rows of a former process; skips foreign and damaged rows."""
        found = [(name[1:], row) for name, row in rows if name[:1] == ROW and len(name) >= 9 and len(row) == 8]
        pairs = sorted((key, int.from_bytes(row)) for key, row in found)
        self._before.update((key, before) for key, before in pairs if before < int.from_bytes(key[:8]))
