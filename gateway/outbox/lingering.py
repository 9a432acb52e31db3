"""Time at which appended publications leave for the disk: at once, or a few milliseconds later together with later
ones.

Follows Nagle's rule (RFC 896). After a batch of its scope a publication waits until `linger_ms` after that batch
left, until every replica has that batch, or until the waiting ones fill a batch. So a lone publication does not wait.
All waiting publications, of other scopes too, leave together: numbers stay in order. Not here: bundling (`bundling`),
the disk (`database`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from gateway.outbox.database import StoredRow


class Lingering:
    """Timer of the hand-over to the disk. Calls `leave` to take the appended publications; the caller then calls
    `note_handed_over`.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._left_at: dict[str, float] = {}  # for each chain that lingers: one a scope
        self._on_disk: dict[int, str] = {}  # number of each chain's last batch, until every replica has it
        self._waiting: dict[str, list[int]] = {}  # records and bytes
        self._timer: asyncio.Handle | None = None
        self._due_s = float("inf")

    def add_row(self, loop: asyncio.AbstractEventLoop, row: StoredRow) -> None:
        """Takes an appended `row` and sets the timer to the latest time that its scope allows."""
        chain, due_s = row.chain, 0.0
        if chain.linger_ms:
            waiting = self._waiting.setdefault(chain.name, [0, 0])
            waiting[0] += row.publications
            waiting[1] += row.size
            if waiting[0] < chain.records and waiting[1] < chain.bytes and not row.frame:
                due_s = self._left_at.get(chain.name, float("-inf")) + chain.linger_ms / 1000
        self._arm(loop, due_s)

    def _arm(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        if due_s >= self._due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        now = due_s <= loop.time()
        self._due_s = 0.0 if now else due_s
        self._timer = loop.call_soon(self._leave) if now else loop.call_at(due_s, self._leave)

    def note_handed_over(self, now: float) -> None:
        """Takes note that all waiting publications are on their way to the disk."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_s = None, float("inf")
        self._left_at.update(dict.fromkeys(self._waiting, now))
        self._waiting.clear()

    def wrote(self, row: StoredRow) -> None:
        """Takes a row that is on disk, the last of its scope so far."""
        if row.chain.linger_ms:
            self._on_disk = {number: name for number, name in self._on_disk.items() if name != row.chain.name}
            self._on_disk[row.sequence] = row.chain.name

    def gone(self, loop: asyncio.AbstractEventLoop | None, sequences: Iterable[int]) -> None:
        """Takes numbers of rows that every replica has: no publication waits for them any longer."""
        if not self._on_disk:
            return
        for sequence in sequences:
            name = self._on_disk.pop(sequence, None)
            if name is not None:
                self._left_at.pop(name, None)
                if name in self._waiting and loop is not None:
                    self._arm(loop, 0.0)
