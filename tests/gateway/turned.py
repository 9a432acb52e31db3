"""Counter of things that are done in one turn of the event loop."""

from __future__ import annotations

import asyncio


class Turned:
    """Counter; `done`: of all, `most`: of those in one turn."""

    def __init__(self) -> None:
        self.done = self.most = self._here = 0
        self._task = asyncio.ensure_future(self._count())

    def add(self) -> None:
        self.done += 1
        self._here += 1
        self.most = max(self.most, self._here)

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._here = 0

    def stop(self) -> None:
        self._task.cancel()
