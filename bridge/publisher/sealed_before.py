"""QoS 2 numbers a former process may have sealed, so that readers may have them.

At QoS 2 a sealed batch keeps its scope and its parts (`scope_placement`), and the outbox does not record sealing. So
the numbers of sealed entries are kept as rows (`Keep`): a row for each run of numbers, with a bit for each number. An
entry that waits for a right or a link beside sealed ones is thus known to be unsealed, and may still change its scope.
QoS 1 may come twice, and needs no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bridge.contract import Keep
from keys.frames import number

RUN_NUMBERS = 1024  # consecutive numbers that one row stands for
RUNS_MAX = 4096  # runs that are remembered; the lowest are forgotten, and what is below the others counts as sealed
ROW = b"q"  # before the run in the names of rows
_ALL = (1 << RUN_NUMBERS) - 1  # the bits of an empty row, as earlier versions wrote it: which were sealed is not known


class SealedBefore:
    """The possibly sealed QoS 2 numbers. By run, the lowest bit of an integer stands for the run's first number."""

    def __init__(self) -> None:
        self._runs: dict[int, int] = {}
        self._former: dict[int, int] = {}  # of those, what a former life wrote
        self.changed: dict[int, None] = {}  # runs whose rows are to be written

    def note_sealed(self, sequence: int) -> None:
        """Notes that a QoS 2 entry is sealed."""
        run, at = divmod(sequence, RUN_NUMBERS)
        before = self._runs.get(run, 0)
        if before >> at & 1:
            return
        self._runs[run] = before | 1 << at
        self.changed[run] = None
        if len(self._runs) > RUNS_MAX:
            self._forget_run(min(self._runs))

    def may_be(self, sequence: int) -> bool:
        """Returns True if a former process may have sealed the number."""
        run, at = divmod(sequence, RUN_NUMBERS)
        return bool(self._former.get(run, 0) >> at & 1) or (len(self._runs) >= RUNS_MAX and run < min(self._runs))

    def all_read(self, sequences: Collection[int]) -> None:
        """Forgets former runs without an entry among `sequences`, which are all that was left on disk."""
        there = {sequence // RUN_NUMBERS for sequence in sequences}
        for run in self._former.keys() - there:
            self._forget_run(run)

    def _forget_run(self, run: int) -> None:
        self._former.pop(run, None)
        if self._runs.pop(run, None) is not None:
            self.changed[run] = None

    # ------------------------------------------------------------------------------------------- over restarts

    def changed_rows(self) -> list[Keep]:
        """Returns the rows changed since the last call."""
        changed, self.changed = self.changed, {}
        rows = tuple((ROW + number(run, 8), _row(self._runs.get(run))) for run in changed)
        return [Keep(rows)] if rows else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the rows of a former process."""
        of = {int.from_bytes(name[1:]): row for name, row in rows if name[:1] == ROW and len(name) == 9}
        self._former.update((run, int.from_bytes(of[run]) or _ALL) for run in sorted(of))
        self._runs.update(self._former)


def _row(bits: int | None) -> bytes | None:
    return None if bits is None else bits.to_bytes((bits.bit_length() + 7) // 8)
