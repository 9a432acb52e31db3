"""The load of a replica's links and of its process, told to its node every window where scopes go by planes (C7).

By link: received and acknowledged since the last time, and waiting; idle links are left out. Not
here: the consequence for a publication (`bridge.replica.plane_routing`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from bridge.contract import LOADS_EVERY_S, Loads, PeerLoad, Worked
from gateway.base.rhythm import until_next
from gateway.client import MqttClient

IDLE_S = 1.0
"""How often it is looked whether some scope goes by planes now."""


class Loading:
    """The load of a replica. `goes_by_planes`: True if a scope needs it."""

    def __init__(self, lanes: Mapping[str, MqttClient], goes_by_planes: Callable[[], bool]) -> None:
        self._lanes, self._goes_by_planes = lanes, goes_by_planes
        self._worked_ns = time.process_time_ns()
        self._before: dict[str, tuple[int, int]] = {}  # by peer: sent since ever, and what waited

    def loads(self) -> Loads:
        """Of links that have something to do, or had."""
        found: list[PeerLoad] = []
        before, self._before = self._before, {}
        for peer, client in self._lanes.items():
            in_flight, waiting, _ = client.load
            sent, queued = client.figures.sent, in_flight + waiting
            sent_before, queued_before = before.get(peer, (sent, queued))
            came = max(0, sent - sent_before)
            if came or queued or queued_before:
                found.append((peer, came, max(0, queued_before + came - queued), queued))
            self._before[peer] = sent, queued
        return Loads(tuple(found))

    def worked(self) -> Worked:
        """Returns this process's work since the last call, and the amount waiting for all links."""
        before, self._worked_ns = self._worked_ns, time.process_time_ns()
        queued = sum(sum(client.load[:2]) for client in self._lanes.values())
        return Worked((self._worked_ns - before) // 1000, queued)

    async def run(self, handle: Callable[[Loads], object]) -> None:
        """Say it until this is cancelled."""
        while True:
            if not self._goes_by_planes():
                await asyncio.sleep(until_next(IDLE_S))
                continue
            await asyncio.sleep(LOADS_EVERY_S)
            loads = self.loads()
            if loads.links:
                handle(loads)
