"""A timer for a deadline of a machine: never early, never lost.

An event loop's timer may run before its time. uvloop rounds delays to whole milliseconds, and inside the callback
`TimerHandle.when()` may still be greater than `loop.time()`. A machine that is asked too early does nothing and keeps
its deadline. So a timer that ran is forgotten before anything else happens, and one that ran early is set again. Not
here: several deadlines of many clients (`clients.record.Deadlines`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DELAY_MIN_S = 0.001
"""A deadline that has passed costs one turn in so long: a machine that keeps such a deadline does not spin the
loop.
"""


class Alarm:
    """Timer for a deadline. Calls `call` once for each deadline that is set, at or after it, on the event loop.

    `clock`: the clock of the deadlines, in seconds.
    """

    def __init__(self, clock: Callable[[], float], call: Callable[[], object]) -> None:
        self._clock, self._call = clock, call
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0  # when the timer runs, in the clock's seconds
        self._deadline: float | None = None

    def set(self, deadline: float | None) -> None:
        """Replaces the deadline that was set before. None: there is no deadline.

        A timer that runs before a later deadline stays, and is set again when it runs: most events move a deadline a
        little later, and a timer costs more than a number.
        """
        self._deadline = deadline
        if deadline is None:
            self.stop()
        elif self._timer is None or deadline < self._looks_at:
            self._start_timer(deadline)

    def _start_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = deadline
        delay_s = max(DELAY_MIN_S, deadline - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look_at_deadline)

    def _look_at_deadline(self) -> None:
        self._timer = None
        deadline = self._deadline
        if deadline is None:
            return
        if self._clock() < deadline:
            self._start_timer(deadline)
            return
        self._deadline = None
        self._call()

    def stop(self) -> None:
        """Forgets the deadline."""
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
