"""Exceptions caused by defects of VeilMQ itself: counted, logged, and shown by `veilmq status`.

The catcher refuses the affected request and goes on; the rest of the process must not suffer from it. Not here: the
reason code of the refusal (`broker.exchange`, `sockets.connection`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gateway.base.log_events import LogEvent

LOG_EVERY_S = 10.0
"""Seconds between two tracebacks of one kind of event: a client that repeats its packet must not fill the log."""


class Defects:
    """Count of the exceptions of a part of the process. `count`: since the start; `last`: the type of the last
    exception, without any data of a client.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.count, self.last = 0, ""
        self._now = now
        self._said_at: dict[LogEvent, float] = {}

    def note_error(self, log: logging.Logger, event: LogEvent, error: BaseException, *args: object) -> None:
        """Counts `error`, and logs `event` with the traceback unless the event was logged within LOG_EVERY_S. `args`
        fill the event's text.
        """
        self.count += 1
        self.last = type(error).__name__
        now = self._now()
        if now - self._said_at.get(event, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._said_at[event] = now
            event.say(log, *args, exc_info=error, total=self.count)
