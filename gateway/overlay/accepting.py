"""SUBACKs waiting until a quorum of replicas knows of the subscription, so that no later publication is missed.

All waiting SUBACKs share a single wait of `ACCEPT_S`. After a wait in vain, later SUBACKs do not wait before a quorum
is there, nor without a link: local publications come at once in any case. Not here: statements and quorums
(`bridge.reader.interest`), retained values (`settling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

ACCEPT_S = 2.0


class Accepting:
    """The waiting SUBACKs of a gateway. `awaits`: tells a clear filter of a scope without a quorum."""

    def __init__(self, awaits: Callable[[str], bool]) -> None:
        self._awaits = awaits
        self._waiting: list[tuple[Sequence[str], Callable[[], None]]] = []
        self._in_vain: Sequence[str] = ()  # filters of somebody who waited in vain, since when no quorum came
        self._timer: asyncio.TimerHandle | None = None

    def wait_for_quorum(self, topic_filters: Sequence[str], done: Callable[[], None]) -> bool:
        """Calls `done` once all filters have a quorum, or after the wait. False: nothing to wait for."""
        if not self._is_awaited(topic_filters) or self._is_awaited(self._in_vain):
            return False
        self._in_vain = ()
        if not self._waiting:
            self._timer = asyncio.get_running_loop().call_later(ACCEPT_S, self._give_up)
        self._waiting.append((topic_filters, done))
        return True

    def _is_awaited(self, topic_filters: Sequence[str]) -> bool:
        return any(map(self._awaits, topic_filters))

    def look_for_quorum(self) -> None:
        """Ends waits after an acknowledgement of a replica."""
        before, self._waiting = self._waiting, []
        ready = []
        for topic_filters, done in before:
            if self._is_awaited(topic_filters):
                self._waiting.append((topic_filters, done))
            else:
                ready.append(done)
        self._end_waits(ready)

    def _give_up(self) -> None:
        self._in_vain = self._waiting[0][0]
        self.stop()

    def _end_waits(self, ready: Sequence[Callable[[], None]]) -> None:
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for done in ready:
            done()

    def stop(self) -> None:
        """Ends all waits."""
        before, self._waiting = self._waiting, []
        self._end_waits([done for _, done in before])
