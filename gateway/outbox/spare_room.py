"""Spare room of the outbox: bytes beyond its bound, for clients of which the outbox holds little.

A client alone may fill the outbox up to its bound, and what is stored stays, since it was acknowledged. Without spare
room all other clients would then be refused. Of the spare room that is free, the clients of a user (or nameless
clients of an address) may hold a quarter, one of them a sixteenth: however many come, room is left for one more.
Entries below the bound are nobody's. Not here: the bytes of the outbox, and the decision to ask (`store`).
"""

from __future__ import annotations

from collections.abc import Sequence

PART = 8
"""The spare room is one of so many parts of the outbox's bound."""
OWNER_PART = 4
"""The clients of one user or address hold at most one of so many parts of the spare room that is free."""
CLIENT_PART = 16
"""One client holds at most one of so many parts of the spare room that is free."""


class SpareRoom:
    """Entries beyond the bound of the outbox, counted by client and by the owner of the clients."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[tuple[str, int], ...]] = {}  # holder and bytes, by sequence number
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def admits(self, owner: str, client: str, size: int, free: int) -> bool:
        """Returns True if a client may store `size` bytes more, of `free` bytes that are left with them."""
        of_owner, of_client = (self._held.get(holder, 0) + size for holder in _holders(owner, client))
        return of_owner * OWNER_PART <= free and of_client * CLIENT_PART <= free

    def enter_entry(self, sequence: int, owner: str, client: str, size: int) -> None:
        """Counts an admitted entry."""
        self._count_entry(entry := tuple((holder, size) for holder in _holders(owner, client)), 1)
        self._entries[sequence] = entry

    def bundled(self, sequences: Sequence[int]) -> None:
        """Counts entries as one, under the number of the first."""
        found = [entry for sequence in sequences if (entry := self._entries.pop(sequence, ()))]
        if found:
            self._entries[sequences[0]] = tuple(share for entry in found for share in entry)

    def gone(self, sequence: int) -> None:
        """Forgets an entry, if it is one beyond the bound."""
        self._count_entry(self._entries.pop(sequence, ()), -1)

    def _count_entry(self, entry: Sequence[tuple[str, int]], sign: int) -> None:
        for holder, size in entry:
            held = self._held.get(holder, 0) + sign * size
            if held:
                self._held[holder] = held
            else:
                del self._held[holder]


def _holders(owner: str, client: str) -> tuple[str, str]:
    return f"owner {owner}", f"client {client}"
