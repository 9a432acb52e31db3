"""Outbox entries in memory: their number by kind, and the room for more.

The outbox may hold a million entries; memory holds some thousand. *Fresh* entries are still to be sealed, *sealed*
ones to be acknowledged by n - f replicas, *waiting* ones cannot be sealed now, *settled* ones are kept for stragglers
only. Each kind has its own bound, so that a scope without a key, or an absent replica, takes no room from active
entries. `publisher` and `windows` decide on sending; the shell reads entries from disk when there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Protocol

RESIDENT_MAX = 8_192  # fresh and sealed entries; the shell leaves more on disk
RESIDENT_BYTES_MAX = 32 << 20  # of their topics and payloads; sealed, they are held twice
BACKLOG_PART = 2  # one in so many of both is for what was left on disk; the rest is for what is new
LEAD_MAX = 256
"""So many entries may one replica have acknowledged that n - f have not: it gets nothing new then. After `kill -9` they
are sealed anew, and replicas believe a new sealing of what they have seen only for recent sequences
(`budgets.RESEALED_MAX`)."""
WAITING_MAX = 16_384  # more of them hold up what is left on disk behind them, and nothing else
WAITING_BYTES_MAX = 32 << 20


class Standing(IntEnum):
    """Standing of an outbox entry: still to be sealed, waiting, sealed, or kept for stragglers only. The values are
    places in lists: each entry is moved some five times, and an enumeration's hash is a call.
    """

    FRESH = 0
    WAITING = 1
    SEALED = 2
    SETTLED = 3


class Resident(Protocol):
    """An entry as this module needs it: its sequence, its counted bytes, and its standing."""

    @property
    def sequence(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def acked(self) -> set[str]: ...

    standing: Standing


class Residents:
    """Numbers and bytes of entries by standing."""

    def __init__(self) -> None:
        self._count, self._bytes = [0] * len(Standing), [0] * len(Standing)
        self._settled: dict[int, None] = {}  # the longest settled first
        self._lead: Counter[str] = Counter()  # by replica: what it acknowledged and too few others did

    def add(self, entry: Resident) -> None:
        self._count[entry.standing] += 1
        self._bytes[entry.standing] += entry.size
        if entry.standing is Standing.SETTLED:
            self._settled[entry.sequence] = None
        if entry.standing is Standing.SEALED:
            self._lead.update(entry.acked)

    def remove(self, entry: Resident) -> None:
        self._count[entry.standing] -= 1
        self._bytes[entry.standing] -= entry.size
        self._settled.pop(entry.sequence, None)
        if entry.standing is Standing.SEALED:
            self._lead.subtract(entry.acked)

    def move(self, entry: Resident, standing: Standing) -> None:
        """Moves an entry to another standing."""
        if entry.standing is not standing:
            self.remove(entry)
            entry.standing = standing
            self.add(entry)

    def acknowledged(self, entry: Resident, peer: str) -> None:
        """Notes that a replica has the entry. Names are those of the home region's replicas, so there are few."""
        if peer not in entry.acked:
            entry.acked.add(peer)
            self._lead[peer] += entry.standing is Standing.SEALED

    def need_not(self, entry: Resident, peers: Iterable[str]) -> None:
        """Counts the entry as acknowledged by these replicas."""
        for peer in peers:
            self.acknowledged(entry, peer)

    def leads(self, peer: str) -> bool:
        """Returns True if a replica is so far ahead of the others that it gets nothing new."""
        return self._lead[peer] >= LEAD_MAX

    def lacked_by(self, peer: str) -> int:
        """Returns the number of sealed entries that too few replicas have and this replica lacks."""
        return self._count[Standing.SEALED] - self._lead[peer]

    @property
    def settled_count(self) -> int:
        """The number of entries that only stragglers lack."""
        return self._count[Standing.SETTLED]

    @property
    def settled_bytes(self) -> int:
        return self._bytes[Standing.SETTLED]

    @property
    def longest_settled(self) -> int:
        """The sequence of the entry settled for longest; there must be one."""
        return next(iter(self._settled))

    @property
    def _unsettled(self) -> tuple[int, int]:
        count, held, fresh, sealed = self._count, self._bytes, Standing.FRESH, Standing.SEALED
        return count[fresh] + count[sealed], held[fresh] + held[sealed]

    def room(self, is_draining: bool) -> tuple[int, int]:
        """Returns the number of entries, and of bytes, that may come; 0 or less: none. While nothing drains, half
        stays free for later new entries: entries left on disk must wait for all earlier ones.
        """
        part = 1 if is_draining else BACKLOG_PART
        count, held = self._unsettled
        return RESIDENT_MAX // part - count, RESIDENT_BYTES_MAX // part - held

    @property
    def waiting_full(self) -> bool:
        """True if another entry that must wait is better left on disk."""
        count, held = self._count[Standing.WAITING], self._bytes[Standing.WAITING]
        return count >= WAITING_MAX or held >= WAITING_BYTES_MAX

    @property
    def wants_backlog(self) -> bool:
        """True if there is room for entries left on disk; new entries have the other half for themselves."""
        count, held = self._unsettled
        fits = count < RESIDENT_MAX // BACKLOG_PART and held < RESIDENT_BYTES_MAX // BACKLOG_PART
        return fits and not self.waiting_full


def first_lacking(entries: Iterable[Resident]) -> int:
    """Returns the first sequence that is not settled; if all are, the one after them, where the disk goes on."""
    last = 0
    lacking: list[int] = []
    for entry in entries:
        last = max(last, entry.sequence)
        if entry.standing is not Standing.SETTLED:
            lacking.append(entry.sequence)
    return min(lacking, default=last + 1)
