"""Waits before sealing: for the member's publishing budget (docs/protocol.md §5.7), for a key, or for the right.

`Pacing` keeps to the budget, so that no replica has to enforce it. Batches and bytes are paid when sealed, data keys
when made. Entries beyond the budget wait in order, in the outbox like all unsent entries. Replicas allow a larger burst
(`publisher_guard.BURST_S`) than this module uses, so that entries delayed on a link are no excess there.

`Hindered` holds entries without a key or a right; `sealing` and `scope_placement` give these reasons. A waiting entry
delays no other one. Each is checked again at a review. An entry that waited a day for the right is given up; `cutting`
has the row on disk. `windows` limits the flow to each replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bridge.contract import Budget, Count, Effect, count_of
from bridge.document import MemberBudgets
from bridge.publisher.entry import Entry, EntryTurn, Standing
from bridge.publisher.residents import Residents
from bridge.publisher.sealing import Sealer
from bridge.wire import OwnLife

BURST_S = 1.0
"""Seconds of a budget that may be used at once."""


class Pacing:
    """The budgets of a gateway. `life` counts its data keys."""

    def __init__(self, budgets: MemberBudgets, life: OwnLife) -> None:
        self._life, self._keys_paid = life, life.keys_made
        self._values = budgets
        self._budgets: tuple[Budget, ...] = ()
        self.held: dict[int, None] = {}
        """The numbers of waiting entries."""
        self._estimated = 0  # bytes of what is being sealed
        self.opens_at: float | None = None

    def adopt_budgets(self, budgets: MemberBudgets) -> None:
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
        if all(map(Budget.has_tokens, self._budgets, (now, now, now))):
            self.opens_at = None
            return True
        self.opens_at = now + max(budget.owed_s for budget in self._budgets) + 0.001
        return False

    def admitted(self, entries: Sequence[Entry], now: float) -> Sequence[Entry]:
        """Returns the leading entries that are to be sealed now; the others wait."""
        if not entries or not self.is_open(now):
            self.held.update(dict.fromkeys(entry.sequence for entry in entries))
            return []
        batches, sealed_bytes, keys = self._budgets
        taken = 0
        for entry in entries[: max(1, int(keys.tokens_left))]:  # each may need a key
            if taken and not (batches.tokens_left > 0 and sealed_bytes.tokens_left > 0):
                break
            batches.spend(1, now)
            sealed_bytes.spend(entry.size, now)
            self._estimated += entry.size
            taken += 1
        if taken < len(entries):
            self.held.update(dict.fromkeys(entry.sequence for entry in entries[taken:]))
        return entries[:taken]

    def charge_sealed(self, entries: Iterable[Entry], now: float) -> None:
        """Charges the bytes by which sealing made the entries larger than estimated."""
        grown = sum([len(piece) for entry in entries for piece in entry.pieces]) - self._estimated
        self._estimated = 0
        if grown:
            self._budgets[1].spend(grown, now)

    def release_waiting(self, entries: Mapping[int, Entry], now: float) -> list[tuple[int, str]]:
        """Returns numbers and chains of waiting entries that still exist, if they may go now."""
        if not self.is_open(now):
            return []
        held, self.held = self.held, {}
        return [(sequence, entries[sequence].chain) for sequence in held if sequence in entries]

    @property
    def next_deadline(self) -> float | None:
        """The time at which waiting entries go on; None if nothing waits."""
        return 0.0 if self.opens_at is None and self.held else self.opens_at


class Hindered:
    """The waiting entries of a gateway. `entries` holds all entries in memory; `most_s` is the longest wait for the
    right.
    """

    def __init__(self, entries: Mapping[int, Entry], residents: Residents, most_s: float) -> None:
        self._entries, self._residents, self._most_s = entries, residents, most_s
        self.give_up_at = float("inf")
        """The time at which the first entry without the right is given up."""

    def __iter__(self) -> Iterator[int]:
        return (sequence for sequence, entry in self._entries.items() if entry.standing is Standing.WAITING)

    def set_aside(self, sequences: Sequence[int], sealer: Sealer, now: float) -> tuple[list[int], list[Effect]]:
        """Returns entries that can be sealed now; the others wait for a review, counted once."""
        ready, effects = [], list[Effect]()
        for sequence in sequences:
            entry = self._entries[sequence]
            why = sealer.hindrance(entry, now)
            if why is None:
                self._residents.move(entry, EntryTurn.FREED)
                ready.append(sequence)
                continue
            unauthorised = why == "not_authorised"
            if entry.standing is not Standing.WAITING or entry.lacks_right is not unauthorised:
                effects.append(Count(why, count_of(entry.publication)))
            entry.lacks_right = unauthorised
            self._residents.move(entry, EntryTurn.HINDERED)
            if unauthorised:
                self.give_up_at = min(self.give_up_at, entry.born + self._most_s)
        return ready, effects

    def given_up(self, now: float) -> tuple[list[int], list[Effect]]:
        """Returns entries that waited too long for the right to publish, and counts their publications."""
        old = [s for s in self if self._entries[s].lacks_right]
        gone = [s for s in old if now - self._entries[s].born >= self._most_s]
        rest = [self._entries[s].born + self._most_s for s in old if now - self._entries[s].born < self._most_s]
        self.give_up_at = min(rest, default=float("inf"))
        lost = sum(count_of(self._entries[s].publication) for s in gone)
        return gone, [Count("not_authorised_dropped", lost)] if lost else []
