"""Room in the write buffer of a peer: writers wait here for it, and a peer taking nothing is found.

The write buffer itself is the transport's; the connection reports when it is full or free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Room:
    """Room in the write buffer of a connection. `unsent`: returns bytes written the peer has not taken; `stalled` is
    called once if the peer takes nothing.
    """

    __slots__ = ("_drained", "_stalled", "_stalled_s", "_timer", "_unsent", "is_full")

    def __init__(self, stalled_s: float, unsent: Callable[[], int], stalled: Callable[[], None]) -> None:
        self._stalled_s, self._unsent, self._stalled = stalled_s, unsent, stalled
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self.is_full = False

    def full(self) -> None:
        """Marks the write buffer as above its limit and checks it every `stalled_s` from now on."""
        self.is_full = True
        self._look_later(self._unsent())

    def _look_later(self, unsent: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._stalled_s, self._look_at_unsent, unsent)

    def _look_at_unsent(self, before: int) -> None:
        unsent = self._unsent()
        if unsent >= before:
            self.end_waits()
            self._stalled()
        else:
            self._look_later(unsent)

    def free(self) -> None:
        """Marks the write buffer as drained."""
        self.is_full = False
        self.end_waits()

    def end_waits(self) -> None:
        """Ends all waits: the buffer has drained, or the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None

    async def wait_for_room(self) -> None:
        """Waits until `free` or `end_waits`."""
        if self.is_full:
            self._drained = self._drained or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)  # several may wait, and one of them be cancelled
