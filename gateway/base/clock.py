"""Clock that measures, and the wall clock beside it, which people and programs set (`bridge.base.wall`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from bridge.base import Wall


class Clock:
    """Clock of steady seconds when called; `wall` is the wall clock's time at the last call."""

    def __init__(self, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._steady, self._on_the_wall = steady, wall
        self.wall = Wall()
        self()

    def __call__(self) -> float:
        now = self._steady()
        self.wall.offset_s = self._on_the_wall() - now
        return now
