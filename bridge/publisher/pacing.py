"""A gateway keeps to what the owner lets a member publish, so that no replica has to see to it (docs/protocol.md §5.7).

Batches and bytes are paid for when they are sealed, data keys when they are made. What exceeds the budget is not sealed
yet: it waits in the order that it has, in the outbox like all that is not sent. Replicas let more through at once
(`publisher_guard.BURST_S`) than is used here, so that what waited on a link is no excess there.
Not here: windows towards replicas (`windows`), what else an entry may wait for (`sealing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bridge.contract import Budget
from bridge.document import MemberBudgets
from bridge.publisher.sealing import Entry
from bridge.wire import OwnLife

BURST_S = 1.0
"""Seconds of a budget that may be used at once."""


class Pacing:
    """`life`: counts our data keys."""

    def __init__(self, budgets: MemberBudgets, life: OwnLife) -> None:
        self._life, self._keys_paid = life, life.keys_made
        self._values = budgets
        self._budgets: tuple[Budget, ...] = ()
        self._held: dict[int, None] = {}
        self._estimated = 0  # bytes of what is being sealed
        self._opens_at: float | None = None

    def adopt(self, budgets: MemberBudgets) -> None:
        """Those of a newer policy."""
        if budgets != self._values:
            self._values, self._budgets = budgets, ()

    def is_open(self, now: float) -> bool:
        """Whether something may be sealed now."""
        if not self._budgets:
            self._budgets = tuple([Budget(value, value * BURST_S, now, float("inf")) for value in self._values.values])
        self._budgets[2].spend(self._life.keys_made - self._keys_paid, now)
        self._keys_paid = self._life.keys_made
        if all(map(Budget.open, self._budgets, (now, now, now))):
            self._opens_at = None
            return True
        self._opens_at = now + max(budget.owed_s for budget in self._budgets) + 0.001
        return False

    def admitted(self, entries: Sequence[Entry], now: float) -> Sequence[Entry]:
        """Which of these are to be sealed now, the first ones; the others wait."""
        if not entries or not self.is_open(now):
            self._held.update(dict.fromkeys(entry.sequence for entry in entries))
            return []
        batches, sealed_bytes, keys = self._budgets
        taken = 0
        for entry in entries[: max(1, int(keys.left))]:  # each may need a key
            if taken and not (batches.left > 0 and sealed_bytes.left > 0):
                break
            batches.spend(1, now)
            sealed_bytes.spend(entry.size, now)
            self._estimated += entry.size
            taken += 1
        self._held.update(dict.fromkeys(entry.sequence for entry in entries[taken:]))
        return entries[:taken]

    def sealed(self, entries: Iterable[Entry], now: float) -> None:
        """They are larger than they were before."""
        grown = sum(len(piece) for entry in entries for piece in entry.pieces) - self._estimated
        self._estimated = 0
        if grown:
            self._budgets[1].spend(grown, now)

    def released(self, entries: Mapping[int, Entry], now: float) -> list[tuple[int, str]]:
        """What waited, if it may go now, of what is still there: numbers and chains."""
        if not self._held or not self.is_open(now):
            return []
        held, self._held = self._held, {}
        return [(sequence, entries[sequence].chain) for sequence in held if sequence in entries]

    @property
    def next_deadline(self) -> float | None:
        """When it goes on; None: nothing waits for that."""
        return 0.0 if self._opens_at is None and self._held else self._opens_at
