"""Since when a reader has each scope subscribed: what came before that is not waited for.

A *generation* is one subscription of a scope, from when a local client wants it until none does. A scope whose tokens
change is one all the while, under its first number (`Scope.stream`); so is one that a former process had subscribed
when it ended, for which replicas kept what came. Not here: what was seen (`streams`), statements (`interest`).
"""

from __future__ import annotations

from bridge.document import Scope
from bridge.reader.kept import SCOPE, KeptReader, Rows, of_kind
from keys.frames import number


class Subscriptions:
    """See the module. `kept`: where rows for a next process go. Scopes are named by their streams."""

    def __init__(self, kept: KeptReader) -> None:
        self._kept = kept
        self._generations: dict[int, int] = {}  # how often it was subscribed
        self._since: dict[int, float] = {}  # when it was subscribed last
        self._goes_on: set[int] = set()  # what our former process had subscribed when it ended

    def resumed(self, stream: int, now: float) -> None:
        """It is subscribed (again)."""
        if stream in self._goes_on:
            self._goes_on.discard(stream)
            return
        self._generations[stream] = self._generations.get(stream, 0) + 1
        self._since[stream] = now
        self._kept.put(SCOPE + number(stream, 4), b"")

    def paused(self, stream: int) -> None:
        """It is not subscribed any more."""
        self._goes_on.discard(stream)
        self._kept.drop(SCOPE + number(stream, 4))

    def generation(self, scope: Scope) -> int:
        """Which subscription of the scope this is; 0 before the first of this process."""
        return self._generations.get(scope.stream, 0)

    def since(self, scope: Scope) -> float:
        """When it began, as far as this process knows."""
        return self._since.get(scope.stream, 0.0)

    def restore(self, rows: Rows) -> None:
        """What a former process kept, among other rows."""
        self._goes_on = {int.from_bytes(key) for key, _ in of_kind(rows, SCOPE)}
