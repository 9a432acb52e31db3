"""Acknowledgements a replica gives later: of a member publishing more than the owner lets it.

Nothing of it is dropped. Its window stays closed meanwhile, and what it has more stays in its outbox. Bounded by the
Receive Maximum towards members. Not here: for how long (`bridge.contract.publisher_guard`), what waits for lanes with
room (`backpressure`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from gateway.clients import Done

Hold = Callable[[Done], bool]


class Delays:
    """A store of acknowledgements that are delayed by seconds."""

    def __init__(self) -> None:
        self._timers: dict[str, dict[int, asyncio.TimerHandle]] = {}
        self._last = 0

    def __len__(self) -> int:
        return sum(map(len, self._timers.values()))

    def hold_for(self, peer: str, delay_s: float, behind: Hold | None) -> Hold:
        """Returns a function for the acknowledgement of a publication, which is sent `delay_s` seconds later.

        If something else holds the publication `behind` that, the acknowledgement waits for both. The function
        returns False
        if the member is not to be read until then.
        """
        return partial(self._start_delay, peer, delay_s, behind)

    def _start_delay(self, peer: str, delay_s: float, behind: Hold | None, done: Done) -> bool:
        waits = 1 if behind is None else 2

        def go(code: int) -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                done(code)

        self._last += 1
        timers = self._timers.setdefault(peer, {})
        timers[self._last] = asyncio.get_running_loop().call_later(delay_s, self._end_delay, peer, self._last, go)
        return True if behind is None else behind(go)

    def _end_delay(self, peer: str, number: int, go: Done) -> None:
        timers = self._timers[peer]
        del timers[number]
        if not timers:
            del self._timers[peer]
        go(0)

    def reconnected(self, peer: str) -> None:
        """A member has another connection: nobody waits on the former one, and it repeats what it has no answer to."""
        for timer in self._timers.pop(peer, {}).values():
            timer.cancel()

    def stop(self) -> None:
        """Nobody waits any longer."""
        for peer in list(self._timers):
            self.reconnected(peer)
