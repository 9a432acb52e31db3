"""Exceptions that are nobody's fault but ours: counted, said in the log, and shown by `veilmq status`.

Whoever catches one refuses what it concerned and goes on; the rest of the process is not to suffer from it. Not here:
with which reason code something is refused (`broker.exchange`, `sockets.connection`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gateway.base.log_events import LogEvent

LOG_EVERY_S = 10.0
"""One traceback for each kind of event at most so often: a client that repeats its packet must not fill the log."""


class Defects:
    """Count of the exceptions of one part of the process. `count`: since the start; `last`: the type of the last one,
    in few words, without anything that a client sent."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.count, self.last = 0, ""
        self._now = now
        self._said_at: dict[LogEvent, float] = {}

    def note(self, log: logging.Logger, event: LogEvent, error: BaseException, *args: object) -> None:
        """Counts `error`, and says `event` with the traceback unless that was said a short while ago. `args` fill the
        event's text."""
        self.count += 1
        self.last = type(error).__name__
        now = self._now()
        if now - self._said_at.get(event, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._said_at[event] = now
            event.say(log, *args, exc_info=error, total=self.count)
