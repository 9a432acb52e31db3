"""The machine of availability topics on a steady clock and the event loop: what clients did in, what to tell out.

What measures is `time.monotonic`: a clock somebody sets neither kills nor spares anybody (`bridge.base.wall`). After a
restart it waits for those whom its own retained documents call online. Not here: what follows from what
(`bridge.traces.availability`), and publishing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bridge.contract import Tick
from bridge.traces import Availability, AvailabilityEffect, AvailabilityEvent, announced_before
from gateway.base import Alarm, Clock


class LocalEntities:
    """`name`: of this gateway. `tell`: each effect, in order."""

    def __init__(self, name: str, prefix: str, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._name, self._prefix = name, prefix
        self.machine = Availability(name, prefix=prefix, wall=self._clock.wall)
        self._tell: Callable[[AvailabilityEffect], None] = lambda effect: None
        self._alarm = Alarm(self._clock, lambda: self.handle(Tick()))

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
        self._alarm.stop()

    def handle(self, event: AvailabilityEvent) -> None:
        """Something happened."""
        for effect in self.machine.handle(event, self._clock()):
            self._tell(effect)
        self._alarm.set(self.machine.next_deadline)
