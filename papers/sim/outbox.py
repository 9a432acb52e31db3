"""A gateway's outbox in the simulator: a part the disk keeps over a crash, and a part in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from bridge.contract import OutboxEntry, OutboxPage

PAGE_ROWS = 256


class SimulatedOutbox:
    """Rows by sequence, as an intake's shelf and the effects `Forget`, `LeaveOnDisk` and `ReadPage` see them.

    `chain_of`: the chain of publications on a clear topic; by default, one for each topic. `is_plain`: True if its
    scope is plain.
    """

    def __init__(
        self, chain_of: Callable[[str], str] = str, is_plain: Callable[[str], bool] = lambda chain: False
    ) -> None:
        self._chain_of, self._is_plain = chain_of, is_plain
        self.rows: dict[int, OutboxEntry] = {}
        self._in_hand: set[int] = set()
        self._last: dict[str, int] = {}

    def put_entries(self, entries: Iterable[OutboxEntry]) -> None:
        """Writes entries to disk. QoS 0 is not stored."""
        for entry in entries:
            sequence, _, publication = entry
            if publication.qos:
                chain = publication.topic if publication.records else self._chain_of(publication.topic)
                self.rows[sequence] = *entry[:2], replace(publication, in_clear=self._is_plain(chain))
                self._in_hand.add(sequence)
                self._last[chain] = max(sequence, self._last.get(chain, 0))

    def crashed(self) -> None:
        """Forgets the memory of the process; the disk stays."""
        self._in_hand.clear()

    def forget_entries(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            if sequence in self._in_hand:
                self._in_hand.discard(sequence)
                del self.rows[sequence]

    def leave_on_disk(self, sequences: Iterable[int]) -> None:
        self._in_hand.difference_update(sequences)

    def page(self, start: int) -> OutboxPage:
        """Returns rows no machine held, and the sequence to read on from."""
        seen = sorted(sequence for sequence in self.rows if sequence >= start)
        now = [sequence for sequence in seen[:PAGE_ROWS] if sequence not in self._in_hand]
        self._in_hand.update(now)
        following = seen[PAGE_ROWS - 1] + 1 if len(seen) >= PAGE_ROWS else None
        return OutboxPage(tuple(self.rows[sequence] for sequence in now), following)

    # ---------------------------------------------------------------------------------- as a shelf

    def first_from(self, start: int) -> tuple[int, int] | None:
        first = min((sequence for sequence in self.rows if sequence >= start), default=None)
        return None if first is None else (first, self.rows[first][2].time_ms)

    def is_left_on_disk(self, sequence: int) -> bool:
        return sequence in self.rows and sequence not in self._in_hand

    def last_of_chain(self, chain: str) -> int:
        return self._last.get(chain, 0)
