"""Which numbers of QoS 2 a former life of ours may have sealed: readers may have got them.

What was sealed does not change its scope or its parts at QoS 2 (`placing`), and the disk does not say what was. So runs
of numbers in which something was sealed are kept as rows (`Keep`): one for some thousand publications. Not here: QoS 1,
which may come twice then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bridge.contract import Keep
from keys.frames import number

RUN_NUMBERS = 1024  # consecutive numbers that one row stands for
RUNS_MAX = 4096  # runs that are remembered; the lowest are forgotten, and what is below the others counts as sealed
ROW = b"q"  # before the run in the names of rows


class SealedBefore:
    """See the module."""

    def __init__(self) -> None:
        self._runs: dict[int, None] = {}
        self._former: set[int] = set()  # those of them that a former life wrote
        self._changed: dict[bytes, bytes | None] = {}

    def sealed(self, sequence: int) -> None:
        """Something of QoS 2 is sealed."""
        run = sequence // RUN_NUMBERS
        if run in self._runs:
            return
        self._runs[run] = None
        self._changed[_name(run)] = b""
        if len(self._runs) > RUNS_MAX:
            self._forget(min(self._runs))

    def may_be(self, sequence: int) -> bool:
        """Whether a former life may have sealed it."""
        run = sequence // RUN_NUMBERS
        return run in self._former or (len(self._runs) >= RUNS_MAX and run < min(self._runs))

    def all_read(self, sequences: Collection[int]) -> None:
        """All that a former life left is in memory: these."""
        there = {sequence // RUN_NUMBERS for sequence in sequences}
        for run in self._former - there:
            self._forget(run)

    def _forget(self, run: int) -> None:
        self._former.discard(run)
        if self._runs.pop(run, self) is None:
            self._changed[_name(run)] = None

    # ------------------------------------------------------------------------------------------- over restarts

    def changes(self) -> list[Keep]:
        """Rows of what changed since this was asked last."""
        changed, self._changed = self._changed, {}
        return [Keep(tuple(changed.items()))] if changed else []

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """What a former process kept."""
        self._former.update(int.from_bytes(name[1:]) for name, _ in rows if name[:1] == ROW and len(name) == 9)
        self._runs.update(dict.fromkeys(sorted(self._former)))


def _name(run: int) -> bytes:
    return ROW + number(run, 8)
