"""Which scopes a reader has subscribed, how often, and since when it remembers all that it got of each.

What was sealed since then, and is not remembered, did not come: it is late, and no replay, however long it was on its
way. It waited for us while our links were cut, at its publisher while its own were, or between regions. This outlives
our process, as the streams do. Not here: what came (`streams`), what is sealed before (`freshness`).
"""

from __future__ import annotations

from bridge.reader.freshness import FRESH_S
from bridge.reader.interest import ScopeInterest
from bridge.reader.kept import SCOPE, KeptReader, Rows, of_kind
from keys.frames import number


class Subscriptions:
    """Of one gateway; scopes by wire filter."""

    def __init__(self, kept: KeptReader) -> None:
        self._kept = kept
        self._generations: dict[str, int] = {}  # how often each was subscribed
        self._since: dict[str, float] = {}  # when each was subscribed last, by this process
        self._whole_since: dict[str, float] = {}  # since when all that came is remembered, of those that are subscribed
        self._goes_on: set[str] = set()  # what our former process had subscribed when it ended

    def restore(self, rows: Rows, now: float) -> None:
        """What a former process had subscribed, and since when."""
        for key, row in of_kind(rows, SCOPE):
            wire_filter = key.decode()
            self._goes_on.add(wire_filter)
            self._whole_since[wire_filter] = int.from_bytes(row) / 1000 if row else now

    def follow(self, before: frozenset[str], interest: ScopeInterest, now: float) -> None:
        """What is wanted now, and was not `before`, and the other way round."""
        wanted = interest.wanted()
        for wire_filter in before - wanted:
            self.paused(wire_filter)
        for wire_filter in wanted - before:
            self.resumed(wire_filter, now)
        for wire_filter in interest.widened():
            self.widened(wire_filter, now)

    def resumed(self, wire_filter: str, now: float) -> None:
        """It is subscribed (again): what was published meanwhile is not waited for. It goes on where our former
        process, for which replicas kept what came, had it too."""
        if wire_filter in self._goes_on:
            self._goes_on.discard(wire_filter)
            return
        self._generations[wire_filter] = self.generation(wire_filter) + 1
        self._since[wire_filter] = now
        self._whole_from(wire_filter, now)

    def paused(self, wire_filter: str) -> None:
        """It is not subscribed any more."""
        self._goes_on.discard(wire_filter)
        self._whole_since.pop(wire_filter, None)
        self._kept.drop(SCOPE + wire_filter.encode())

    def widened(self, wire_filter: str, now: float) -> None:
        """More of it is wanted: replicas left that out until now."""
        if wire_filter in self._whole_since:
            self._whole_from(wire_filter, now)

    def forgot(self, wire_filter: str, now: float) -> None:
        """Something that came is remembered no more. By its publisher's clock it may have been sealed a bit later."""
        if wire_filter in self._whole_since:
            self._whole_from(wire_filter, now + FRESH_S)

    def generation(self, wire_filter: str) -> int:
        """How often it was subscribed."""
        return self._generations.get(wire_filter, 0)

    def is_before(self, wire_filter: str, time_ms: int) -> bool:
        """Whether that was before this process subscribed it."""
        return time_ms / 1000 < self._since.get(wire_filter, 0.0)

    def would_know(self, wire_filter: str, time_ms: int, now: float) -> bool:
        """Whether it would be remembered, had it come: it was sealed after the subscription, and is not to come."""
        since = self._whole_since.get(wire_filter)
        return since is not None and since < time_ms / 1000 <= now

    def _whole_from(self, wire_filter: str, since: float) -> None:
        self._whole_since[wire_filter] = since
        self._kept.put(SCOPE + wire_filter.encode(), number(int(since * 1000), 8))
