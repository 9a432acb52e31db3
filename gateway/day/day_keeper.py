"""Keeper of the last day: takes a row each minute, writes it and the alarms to the data directory, in a thread.

`figures.day` has a place for each minute (`minutes.py`), `alarms.json` is replaced when alarms changed. Without a data
directory, or with a disk that takes nothing, both are in memory only. What cannot be read is begun anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateway.base import PrivateFileError, read_private, write_private
from gateway.base.log_events import LogEvent
from gateway.day.minutes import FIELDS, MINUTES_MAX, ROW_BYTES, Minute, Sampler, rows_of, shown
from gateway.health.alarms import Alarms

log = logging.getLogger("veilmq.day")

FIGURES_FILE, ALARMS_FILE = "figures.day", "alarms.json"
MINUTE_S = 60.0


class DayKeeper:
    """The last day of a process. `data`: its data directory, if any; `look`: the present figures (`Sampler`)."""

    def __init__(
        self, data: Path | None, look: Callable[[], Mapping[str, float]], alarms: Alarms,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._data, self._look, self._alarms, self._clock = data, look, alarms, clock
        self._rows: deque[Minute] = deque(maxlen=MINUTES_MAX)
        self._sampler: Sampler | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    def start(self) -> None:
        """Reads what a former process kept, and takes a row each minute from now on."""
        now = self._clock()
        if self._data is not None:
            with contextlib.suppress(OSError):
                self._rows.extend(rows_of((self._data / FIGURES_FILE).read_bytes()[: MINUTES_MAX * ROW_BYTES], now))
            with contextlib.suppress(PrivateFileError):
                self._alarms.restore_alarms(read_private(self._data / ALARMS_FILE))
        self._sampler = Sampler(self._look, now)
        self._task = asyncio.get_running_loop().create_task(self._look_every_minute(), name="day")

    async def stop(self) -> None:
        """Ends; alarms that changed are kept."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._keep_minute(None)

    def shown_day(self) -> dict[str, Any]:
        """Returns rows and alarms as JSON: the answer to `/day`."""
        return {"fields": ["at", *FIELDS], "rows": shown(self._rows), "alarms": self._alarms.shown_alarms()}

    async def take_row(self) -> None:
        """Takes the row of the minute that ends now."""
        assert self._sampler is not None
        row = self._sampler.row(self._clock())
        self._rows.append(row)
        await self._keep_minute(row)

    async def _keep_minute(self, row: Minute | None) -> None:
        if self._data is None:
            return
        content, self._alarms.is_changed = self._alarms.encode() if self._alarms.is_changed else None, False
        try:
            await asyncio.to_thread(_write, self._data, row, content)
        except (OSError, PrivateFileError) as error:
            self._alarms.is_changed = content is not None
            if not self._is_failing:
                LogEvent.DAY_NOT_KEPT.say(log, error)
            self._is_failing = True
        else:
            self._is_failing = False

    async def _look_every_minute(self) -> None:
        while True:
            now = self._clock()
            await asyncio.sleep(MINUTE_S - now % MINUTE_S)
            await self.take_row()


def _write(data: Path, row: Minute | None, alarms: bytes | None) -> None:
    if alarms is not None:
        write_private(data / ALARMS_FILE, alarms, replace=True)
    if row is None:
        return
    descriptor = os.open(data / FIGURES_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, row.encode(), row.place * ROW_BYTES)
    finally:
        os.close(descriptor)
