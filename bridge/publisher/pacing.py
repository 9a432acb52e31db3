"""Pacing of a gateway to the member's publishing budget, so that no replica has to enforce it (docs/protocol.md §5.7).

Batches and bytes are paid when sealed, data keys when made. Entries beyond the budget are not sealed yet: they wait in
order, in the outbox like all unsent entries. Replicas allow a larger burst (`publisher_guard.BURST_S`) than this
module uses, so that entries delayed on a link are no excess there. `windows` limits the flow to each replica,
`sealing` knows other reasons to wait.
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
    """The budgets of one gateway. `life` counts its data keys."""

    def __init__(self, budgets: MemberBudgets, life: OwnLife) -> None:
        self._life, self._keys_paid = life, life.keys_made
        self._values = budgets
        self._budgets: tuple[Budget, ...] = ()
        self.held: dict[int, None] = {}
        """The numbers of waiting entries."""
        self._estimated = 0  # bytes of what is being sealed
        self._opens_at: float | None = None

    def adopt(self, budgets: MemberBudgets) -> None:
        """Adopts the budgets of a newer policy."""
        if budgets != self._values:
            self._values, self._budgets = budgets, ()

    def is_open(self, now: float) -> bool:
        """Returns True if an entry may be sealed now."""
        if not self._budgets:
            self._budgets = tuple([Budget(value, value * BURST_S, now, float("inf")) for value in self._values.values])
        if self._life.keys_made != self._keys_paid:
            self._budgets[2].spend(self._life.keys_made - self._keys_paid, now)
            self._keys_paid = self._life.keys_made
        if all(map(Budget.open, self._budgets, (now, now, now))):
            self._opens_at = None
            return True
        self._opens_at = now + max(budget.owed_s for budget in self._budgets) + 0.001
        return False

    def admitted(self, entries: Sequence[Entry], now: float) -> Sequence[Entry]:
        """Returns the leading entries that are to be sealed now; the others wait."""
        if not entries or not self.is_open(now):
            self.held.update(dict.fromkeys(entry.sequence for entry in entries))
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
        if taken < len(entries):
            self.held.update(dict.fromkeys(entry.sequence for entry in entries[taken:]))
        return entries[:taken]

    def sealed(self, entries: Iterable[Entry], now: float) -> None:
        """Charges the bytes by which sealing made the entries larger than estimated."""
        grown = sum([len(piece) for entry in entries for piece in entry.pieces]) - self._estimated
        self._estimated = 0
        if grown:
            self._budgets[1].spend(grown, now)

    def released(self, entries: Mapping[int, Entry], now: float) -> list[tuple[int, str]]:
        """Returns numbers and chains of waiting entries that still exist, if they may go now."""
        if not self.held or not self.is_open(now):
            return []
        held, self.held = self.held, {}
        return [(sequence, entries[sequence].chain) for sequence in held if sequence in entries]

    @property
    def next_deadline(self) -> float | None:
        """The time at which waiting entries go on; None if nothing waits."""
        return 0.0 if self._opens_at is None and self.held else self._opens_at
