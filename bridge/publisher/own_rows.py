"""What of the publisher side outlives its process beside the outbox: the rows of its parts, as the reader's (`kept`).

Not here: what they mean (each in its module), the disk (the shell).
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
    """`entries`: numbers of what is in memory."""

    def __init__(
        self,
        entries: Collection[int],
        retained: OwnRetained,
        predecessors: Predecessors,
        cuts: Cuts,
        scopes: FormerScopes,
        sealed: SealedBefore,
    ) -> None:
        self._entries, self._retained, self._cuts, self._sealed = entries, retained, cuts, sealed
        self._others = predecessors, cuts, scopes, sealed

    def changes(self) -> list[Effect]:
        """Rows of what changed since this was asked last."""
        kept = self._retained, *self._others
        return [effect for each in kept for effect in each.changes()]

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """What a former process kept, but of what is retained."""
        found = tuple(rows)
        for each in self._others:
            each.restore(found)

    def after(self, page: OutboxPage) -> list[Effect]:
        """Behind the last page all that a former life left on disk has come: rows of what did not are dropped."""
        if page.following is None and not page.unreadable:
            self._cuts.all_read()
            self._sealed.all_read(self._entries)
        return []
