"""The machine of availability topics on a steady clock and the event loop: what clients did in, what to tell out.

What measures is `time.monotonic`: a clock that somebody sets neither kills nor spares anybody (`bridge.base.wall`).
After a restart it waits for those whom its own retained documents call online. Not here: what follows from what
(`bridge.traces.availability`), and publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from bridge.contract import Tick
from bridge.traces import Availability, AvailabilityEffect, AvailabilityEvent, announced_before
from gateway.base import Clock


class LocalEntities:
    """`name`: of this gateway. `tell`: each effect, in order."""

    def __init__(self, name: str, prefix: str, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._name, self._prefix = name, prefix
        self.machine = Availability(name, prefix=prefix, wall=self._clock.wall)
        self._tell: Callable[[AvailabilityEffect], None] = lambda effect: None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    @property
    def kept_at(self) -> str:
        """The filter under which what is retained here has our documents among it."""
        return f"{self._prefix}/+/+/availability"

    def start(self, tell: Callable[[AvailabilityEffect], None], retained: Iterable[tuple[str, bytes]]) -> None:
        """`retained`: topics and payloads of before."""
        self._tell = tell
        for topic, payload in retained:
            found = announced_before(self._name, topic, payload, self._prefix)
            if found is not None:
                self.handle(found)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle(self, event: AvailabilityEvent) -> None:
        """Something happened."""
        now = self._clock()
        for effect in self.machine.handle(event, now):
            self._tell(effect)
        deadline = self.machine.next_deadline
        if deadline is None or (self._timer is not None and self._due <= deadline):
            return  # it looks earlier anyway, and then sees what is left to do
        self.stop()
        self._due = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.001, deadline - now), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.handle(Tick())
