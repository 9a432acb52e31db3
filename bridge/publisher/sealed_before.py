"""QoS 2 numbers a former process may have sealed, so that readers may have them.

At QoS 2 a sealed batch keeps its scope and its parts (`placing`), and the outbox does not record sealing. So runs of
numbers with sealed entries are kept as rows (`Keep`): one for some thousand publications. QoS 1 may come twice, and
needs no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bridge.contract import Keep
from keys.frames import number

RUN_NUMBERS = 1024  # consecutive numbers that one row stands for
RUNS_MAX = 4096  # runs that are remembered; the lowest are forgotten, and what is below the others counts as sealed
ROW = b"q"  # before the run in the names of rows


class SealedBefore:
    """The runs of possibly sealed QoS 2 numbers."""

    def __init__(self) -> None:
        self._runs: dict[int, None] = {}
        self._former: set[int] = set()  # those of them that a former life wrote
        self.changed: dict[bytes, bytes | None] = {}

    def sealed(self, sequence: int) -> None:
        """Notes that a QoS 2 entry is sealed."""
        run = sequence // RUN_NUMBERS
        if run in self._runs:
            return
        self._runs[run] = None
        self.changed[_name(run)] = b""
        if len(self._runs) > RUNS_MAX:
            self._forget(min(self._runs))

    def may_be(self, sequence: int) -> bool:
        """Returns True if a former process may have sealed the number."""
        run = sequence // RUN_NUMBERS
        return run in self._former or (len(self._runs) >= RUNS_MAX and run < min(self._runs))

    def all_read(self, sequences: Collection[int]) -> None:
        """Forgets former runs without an entry among `sequences`, which are all that was left on disk."""
        there = {sequence // RUN_NUMBERS for sequence in sequences}
        for run in self._former - there:
            self._forget(run)

    def _forget(self, run: int) -> None:
        self._former.discard(run)
        if self._runs.pop(run, self) is None:
            self.changed[_name(run)] = None

    # ------------------------------------------------------------------------------------------- over restarts

    def changes(self) -> list[Keep]:
        """Returns the rows changed since the last call."""
        changed, self.changed = self.changed, {}
        return [Keep(tuple(changed.items()))] if changed else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the rows of a former process."""
        self._former.update(int.from_bytes(name[1:]) for name, _ in rows if name[:1] == ROW and len(name) == 9)
        self._runs.update(dict.fromkeys(sorted(self._former)))


def _name(run: int) -> bytes:
    return ROW + number(run, 8)
