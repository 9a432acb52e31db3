"""Who waits until our replicas know of a subscription: a SUBACK, so that nothing published after it is missed.

A subscription counts once a quorum of our region acknowledged it. Nobody waits for longer than `ACCEPT_S`, nor without
a link: local publications come at once in any case. Not here: statements and quorums (`bridge.reader.interest`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

ACCEPT_S = 2.0


class Accepting:
    """See the module. `awaits`: whether a clear filter asks for a scope that does not count yet."""

    def __init__(self, awaits: Callable[[str], bool]) -> None:
        self._awaits = awaits
        self._waiting: dict[int, tuple[asyncio.TimerHandle, Sequence[str], Callable[[], None]]] = {}
        self._last = 0

    def wait(self, topic_filters: Sequence[str], done: Callable[[], None]) -> bool:
        """Call `done` when all of them count. False: they do already, and it is not called."""
        if not any(map(self._awaits, topic_filters)):
            return False
        self._last += 1
        timer = asyncio.get_running_loop().call_later(ACCEPT_S, self._end, self._last)
        self._waiting[self._last] = timer, topic_filters, done
        return True

    def look(self) -> None:
        """Something was acknowledged."""
        for number, (_, topic_filters, _) in list(self._waiting.items()):
            if not any(map(self._awaits, topic_filters)):
                self._end(number)

    def _end(self, number: int) -> None:
        timer, _, done = self._waiting.pop(number)
        timer.cancel()
        done()

    def stop(self) -> None:
        """Nobody waits any longer."""
        for number in list(self._waiting):
            self._end(number)
