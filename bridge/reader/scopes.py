"""Which scopes a gateway has subscribed, since when and how often: what was published before is not waited for.

Not here: what is stated to replicas (`interest`).
"""

from __future__ import annotations

from bridge.reader.kept import SCOPE, KeptReader, Rows, of_kind


class Scopes:
    """See the module. All by wire filter. `kept`: where rows for a next process go."""

    def __init__(self, kept: KeptReader) -> None:
        self._kept = kept
        self._generations: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._goes_on: set[str] = set()  # that our former process had subscribed when it ended

    def restore(self, rows: Rows) -> None:
        """What a former process had subscribed."""
        self._goes_on = {key.decode() for key, _ in of_kind(rows, SCOPE)}

    def resumed(self, wire_filter: str, now: float) -> None:
        """It is subscribed (again): what was published meanwhile is not waited for. It goes on where our former
        process, for which replicas kept what came, had it."""
        if wire_filter in self._goes_on:
            self._goes_on.discard(wire_filter)
            return
        self._generations[wire_filter] = self._generations.get(wire_filter, 0) + 1
        self._since[wire_filter] = now
        self._kept.put(SCOPE + wire_filter.encode(), b"")

    def paused(self, wire_filter: str) -> None:
        """It is not subscribed any more."""
        self._goes_on.discard(wire_filter)
        self._kept.drop(SCOPE + wire_filter.encode())

    def generation(self, wire_filter: str) -> int:
        """How often it was subscribed."""
        return self._generations.get(wire_filter, 0)

    def since(self, wire_filter: str) -> float:
        """When it was subscribed last; 0: by a former process."""
        return self._since.get(wire_filter, 0.0)
