"""Gaps in streams of scopes with a history, while they are read again (docs/protocol-options.md §12.4).

Replicas recall a publication for half a minute. A predecessor that does not come within `waiting.REPAIR_S` is looked
for in the histories of the replicas: by the publishers that may have signed it, in the span in which they sealed it.
Meanwhile only that stream waits, and for `GAP_S` at most. Each gap is read once, so a publisher that signs gaps delays
its own publications alone. `collector` finds gaps, `readings` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.contract import FairBudget
from bridge.document import Scope
from bridge.reader.streams import StreamId

GAP_S = 60.0  # the longest wait for one gap: two patiences of a reading
GAPS_MAX = 8  # read at once, each of another publisher
GAPS_PER_S, GAPS_BURST = 0.2, 32.0
"""Gaps that are read, fair over publishers: a publisher that signs gaps leaves others their part."""


@dataclass(slots=True, eq=False)
class Gap:
    """A gap that is read again.

    `streams`: those that wait; `publishers`: keys that may have signed it; `since`: UNIX time of the last publication
    before it; `until_ms`: time of the first one behind it, exclusive; `gives_up`: when the wait is over.
    """

    streams: tuple[StreamId, ...]
    scope: Scope
    publishers: tuple[bytes, ...]
    since: float
    until_ms: int
    gives_up: float
    is_over: bool = False


class Gaps:
    """Gaps of one reader that are read, or to be read."""

    def __init__(self) -> None:
        self._open: dict[StreamId, Gap] = {}
        self._by_publisher: dict[bytes, Gap] = {}
        self._budget = FairBudget(GAPS_PER_S, GAPS_BURST, 0.0)
        self.fresh: list[Gap] = []
        """Gaps whose reading has to begin."""
        self.get = self._open.get

    def open_gap(self, gap: Gap, now: float) -> bool:
        """Opens a gap; returns False if too many are read, or too many of its publisher were."""
        publisher = gap.publishers[-1]
        if len(self._by_publisher) >= GAPS_MAX or publisher in self._by_publisher:
            return False
        if not self._budget.spend_one(publisher, now):
            return False
        self._by_publisher[publisher] = gap
        self._open.update(dict.fromkeys(gap.streams, gap))
        self.fresh.append(gap)
        return True

    def end_gap(self, gap: Gap) -> None:
        """Ends the wait for a gap, whether something was found or not."""
        gap.is_over = True
        self._by_publisher.pop(gap.publishers[-1], None)
        for stream_id in gap.streams:
            self._open.pop(stream_id, None)
        if gap in self.fresh:
            self.fresh.remove(gap)

    def end_of(self, stream: int) -> None:
        """Ends all gaps of a scope, which its first number names."""
        for gap in [gap for gap in self._by_publisher.values() if gap.scope.stream == stream]:
            self.end_gap(gap)
