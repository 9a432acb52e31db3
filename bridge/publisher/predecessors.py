"""Entries that were dropped unsent: what follows them in their scopes names the one before them instead, or subscribers
would wait for them in vain."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from bridge.publisher.sealing import Entry

DROPPED_MAX = 65_536  # unsent entries that are remembered for what follows them in their scopes; the oldest go


class Predecessors:
    """See the module."""

    def __init__(self) -> None:
        self._before: OrderedDict[int, int] = OrderedDict()  # dropped -> the one before it that was not

    def __getitem__(self, previous: int) -> int:
        """What the follower of an entry names."""
        return self._before.get(previous, previous)

    def drop(self, entries: Iterable[Entry]) -> None:
        """Entries that were not sent. Those of QoS 0 are nobody's predecessors; a snapshot's number went before."""
        for entry in entries:
            if entry.publication.qos and not entry.is_snapshot:
                self._before[entry.sequence] = self[entry.previous]
        while len(self._before) > DROPPED_MAX:
            self._before.popitem(last=False)
