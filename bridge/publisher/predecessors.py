"""What the follower of an entry names as the one before it, where that is not what the disk says.

The disk names what was stored before each entry, in the chain that its topics had then. It may have been dropped unsent
since, or be in the chain of another scope: subscribers would wait for it in vain. And of another scope entries may have
come between. What was dropped or has left is on disk (`Keep`): a next life would name what none of its replicas ever
gets. One row stands for a run of dropped entries, since only the next one of its chain names an entry. What is not
stored may name it as well, but does not outlive us.
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
    """See the module."""

    def __init__(self) -> None:
        self._before: OrderedDict[bytes, int] = OrderedDict()  # number, chain -> the one before it that is there
        self._changed: dict[bytes, bytes | None] = {}  # rows to be written
        self._last: dict[str, int] = {}  # of chains into which something came from others: what came last

    def of(self, entry: Entry) -> int:
        """What it names. One before it may have been dropped after it."""
        return self._before_in(entry.chain, entry.previous)

    def __getitem__(self, previous: int) -> int:
        """What names `previous` names instead, in whatever chain."""
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
        """Entries that were not sent. Those of QoS 0 are nobody's predecessors; a snapshot's number went before."""
        for entry in entries:
            if not entry.publication.qos or entry.is_snapshot or entry.previous >= entry.sequence:
                continue
            self._put(number(entry.sequence, 8), self.of(entry))
            if (before := number(entry.previous, 8)) in self._before:
                self._forget_row(before)

    def left(self, entry: Entry, chain: str, before: int) -> None:
        """An entry that was in `chain`, behind `before`, is in another one now."""
        if entry.publication.qos and before < entry.sequence:
            self._put(number(entry.sequence, 8) + chain.encode(), self._before_in(chain, before))
        came = number(entry.sequence, 8) + entry.chain.encode()
        if self._before.pop(came, None) is not None:
            self._forget_row(came)

    def _put(self, key: bytes, before: int) -> None:
        self._before[key] = before
        self._changed[key] = number(before, 8)
        while len(self._before) > DROPPED_MAX:
            self._forget_row(self._before.popitem(last=False)[0])

    def _forget_row(self, key: bytes) -> None:
        if self._changed.pop(key, None) is None:  # else it was never written
            self._changed[key] = None

    # ------------------------------------------------------------------------------------ what came from elsewhere

    def joins(self, chain: str, entries: Mapping[int, Entry]) -> None:
        """Something comes into a chain from another one, behind what of it is in memory."""
        if chain not in self._last:
            of = (e for e in entries.values() if e.chain == chain and e.publication.qos and not e.is_snapshot)
            self._last[chain] = max((e.sequence for e in of), default=0)

    def came(self, entry: Entry) -> None:
        """An entry that is new in memory follows the last one of such a chain, whatever the disk says."""
        last = self._last.get(entry.chain)
        if last is None or last >= entry.sequence:
            return
        entry.previous = max(entry.previous, last)
        if entry.publication.qos:
            self._last[entry.chain] = entry.sequence

    def link(self, entries: Mapping[int, Entry]) -> None:
        """Such chains have other entries than before: what is not sealed follows what stands before it."""
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
        """Rows of what changed since this was asked last."""
        changed, self._changed = self._changed, {}
        rows = tuple((ROW + key, row) for key, row in changed.items())
        return [Keep(rows)] if rows else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """What a former process kept. A row that is none of ours, or damaged, is left out."""
        found = [(name[1:], row) for name, row in rows if name[:1] == ROW and len(name) >= 9 and len(row) == 8]
        pairs = sorted((key, int.from_bytes(row)) for key, row in found)
        self._before.update((key, before) for key, before in pairs if before < int.from_bytes(key[:8]))
