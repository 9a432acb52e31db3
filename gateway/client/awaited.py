"""Pending acknowledgements of a client's publications: callbacks for success or refusal, and the server's delay.

A publication at a time is timed, from its writing to its acknowledgement. No I/O: `mqtt_client` calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from gateway.base import LinkFigures
from gateway.mqtt5.client_session import Completed
from gateway.mqtt5.packets import NO_PROPERTIES
from gateway.mqtt5.types import ReasonCode


@dataclass(frozen=True, slots=True)
class Awaiting:
    """The token of a publication.

    `written_at`: seconds of `time.perf_counter` (uvloop's clock counts milliseconds).
    """

    on_ack: Callable[[], object] | None
    on_refused: Callable[[int], None] | None
    written_at: float | None


class Acknowledgements:
    """The pending acknowledgements of a client. `refused`: publications answered with a reason code of failure."""

    def __init__(self, figures: LinkFigures) -> None:
        self.refused = 0
        self.refusal = NO_PROPERTIES
        """Properties of the answer that refused a publication, valid during `on_refused`."""
        self._figures = figures
        self._timed: float | None = None

    def awaiting_for(
        self, on_ack: Callable[[], object] | None, on_refused: Callable[[int], None] | None, written_now: bool
    ) -> Awaiting:
        return Awaiting(on_ack, on_refused, time.perf_counter() if written_now and self._timed is None else None)

    def start_timing(self, awaiting: Awaiting) -> None:
        """Starts timing a publication that was sent and is no longer queued."""
        self._timed = awaiting.written_at or self._timed

    def take_completed(self, action: Completed) -> None:
        awaiting = cast(Awaiting, action.token)
        if action.code >= ReasonCode.UNSPECIFIED_ERROR:
            self.refused += 1
            self._timed, self.refusal = None, action.properties
            if awaiting.on_refused is not None:
                awaiting.on_refused(action.code)
            self.refusal = NO_PROPERTIES
            return
        if awaiting.written_at is not None and self._timed == awaiting.written_at:
            self._timed, self._figures.acknowledge_s = None, time.perf_counter() - awaiting.written_at
        if awaiting.on_ack is not None:
            awaiting.on_ack()

    def stop_timing(self) -> None:
        """Stops timing, because the connection is gone."""
        self._timed = None
