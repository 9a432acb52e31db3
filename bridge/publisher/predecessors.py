"""Entries that were dropped unsent: what follows them in their scopes names the one before them instead, or subscribers
would wait for them in vain.

The disk names what was stored before each entry, whether it went or not. So this is on disk, too (`Keep`): a next life
would name what none of its replicas ever gets. One row stands for a run of dropped entries, since only the next one of
its chain names an entry. What is not stored may name it as well, but does not outlive us.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from bridge.contract import Keep
from bridge.publisher.sealing import Entry
from keys.frames import number

DROPPED_MAX = 65_536  # unsent entries that are remembered, with rows, for what follows them; the oldest go
ROW = b"d"  # before the number in the names of rows


class Predecessors:
    """See the module."""

    def __init__(self) -> None:
        self._before: OrderedDict[int, int] = OrderedDict()  # dropped -> the one before it that was not
        self._changed: dict[int, bytes | None] = {}  # rows to be written

    def __getitem__(self, previous: int) -> int:
        """What the follower of an entry names. One before it may have been dropped after it."""
        while (before := self._before.get(previous)) is not None:
            previous = before
        return previous

    def drop(self, entries: Iterable[Entry]) -> None:
        """Entries that were not sent. Those of QoS 0 are nobody's predecessors; a snapshot's number went before."""
        for entry in entries:
            if not entry.publication.qos or entry.is_snapshot or entry.previous >= entry.sequence:
                continue
            before = self._before[entry.sequence] = self[entry.previous]
            self._changed[entry.sequence] = number(before, 8)
            if entry.previous in self._before:
                self._forget_row(entry.previous)
        while len(self._before) > DROPPED_MAX:
            self._forget_row(self._before.popitem(last=False)[0])

    def _forget_row(self, sequence: int) -> None:
        if self._changed.pop(sequence, None) is None:  # else it was never written
            self._changed[sequence] = None

    # ------------------------------------------------------------------------------------------- over restarts

    def changes(self) -> list[Keep]:
        """Rows of what changed since this was asked last."""
        changed, self._changed = self._changed, {}
        rows = tuple((ROW + number(sequence, 8), row) for sequence, row in changed.items())
        return [Keep(rows)] if rows else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """What a former process kept. A row that is none of ours, or damaged, is left out."""
        found = [(name[1:], row) for name, row in rows if name[:1] == ROW and (len(name), len(row)) == (9, 8)]
        pairs = sorted((int.from_bytes(name), int.from_bytes(row)) for name, row in found)
        self._before.update((sequence, before) for sequence, before in pairs if before < sequence)
