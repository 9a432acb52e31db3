"""Rows of the publisher side that outlive its process beside the outbox, like the reader's (`kept`).

Each module defines its rows; the shell has the disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bridge.contract import Effect, OutboxPage
from bridge.publisher.cutting import Cuts
from bridge.publisher.former_scopes import FormerScopes
from bridge.publisher.own_retained import OwnRetained
from bridge.publisher.predecessors import Predecessors
from bridge.publisher.sealed_before import SealedBefore


class OwnRows:
    """The rows of all parts of one publisher. `entries` are the numbers of entries in memory."""

    def __init__(
        self,
        entries: Collection[int],
        retained: OwnRetained,
        predecessors: Predecessors,
        cuts: Cuts,
        scopes: FormerScopes,
        sealed: SealedBefore,
    ) -> None:
        self._entries, self._cuts, self._sealed = entries, cuts, sealed
        self._others, self._scopes = (predecessors, cuts, scopes, sealed), scopes
        self._noting = retained, predecessors, cuts, sealed

    def changes(self) -> list[Effect]:
        """Returns the rows changed since the last call."""
        found: list[Effect] = list(self._scopes.changes())
        for each in self._noting:
            if each.changed:  # asked after every event; as a rule nothing did
                found += each.changes()
        return found

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the rows of a former process, except retained publications."""
        found = tuple(rows)
        for each in self._others:
            each.restore(found)

    def after(self, page: OutboxPage) -> list[Effect]:
        """Drops rows without entries after the last page: everything that a former process left on disk has come."""
        if page.following is None and not page.unreadable:
            self._cuts.all_read()
            self._sealed.all_read(self._entries)
        return []
