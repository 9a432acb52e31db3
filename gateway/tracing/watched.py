"""A broker that is an entity itself: others trace it, and trackers hear when a majority of them holds it for failed.

So a gateway's death is known, which no client behind it could tell. It says that it lives, and answers pings, from
threads of its own, but only while its event loop turns: one that hangs serves nobody. Not here: how an entity speaks
(`client`), whom it traces (`assembly`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from bridge.tracking import Told, Wishes
from gateway.base import WatchedSettings
from gateway.tracing.client import TracedEntity, connection

BEAT_S = 0.25
STUCK_S = 2.0  # an event loop that did not turn for so long answers no ping, and says nothing by itself


class Watched(TracedEntity):
    """`begin_tracing` on the event loop that is watched, `end_tracing` when it has ended."""

    def __init__(self, settings: WatchedSettings) -> None:
        """Raises TrustError, PrivateFileError."""
        wishes = Wishes(tuple(settings.discoverers), secured=settings.secured)
        configure = connection(settings.username, settings.password_file, settings.cafile)
        super().__init__(settings.credentials, settings.brokers, wishes=wishes, configure=configure)
        self._beat_at = time.monotonic()
        self._begun = False

    def begin_tracing(self) -> None:
        """We serve from now on."""
        self._begun = True
        self._beat()
        self.state("READY")
        self.start()

    def end_tracing(self) -> None:
        """A stop is no failure: say that it is one."""
        if self._begun:
            self.state("SHUTDOWN")
            self.stop()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    @property
    def _is_stuck(self) -> bool:
        return time.monotonic() - self._beat_at > STUCK_S

    def _take_told(self, index: int, told: Told, now: float) -> Iterable[tuple[int | None, Any]]:
        return [] if self._is_stuck else super()._take_told(index, told, now)

    def _advance_machine(self, now: float) -> Iterable[tuple[int | None, Any]]:
        return [] if self._is_stuck else super()._advance_machine(now)

    def _machine_deadline(self) -> float | None:
        due = super()._machine_deadline()
        return max(due, self._clock() + BEAT_S) if due is not None and self._is_stuck else due
