"""The keeper of receipts: the database in a thread, behind the effects of a node.

Traffic never waits for the disk. A disk that refuses loses proofs, and nothing else; the loss is counted and said.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bridge.contract import Count, KeepSealed, ReceiptCame
from gateway.base.log_events import LogEvent
from gateway.receipts.database import ReceiptDatabase, ReceiptsError, receipts_file

log = logging.getLogger("veilmq.receipts")

WRITE_EVERY_S = 0.5
WAITING_MAX = 65_536
"""Rows on their way to the disk; what comes beyond them is in no proof."""


class ReceiptKeeper:
    """The receipts of a gateway on disk. Every method belongs to the event loop's thread. `key`: of the store."""

    def __init__(self, data: Path, key: Callable[[], bytes], count: Callable[[Count], None]) -> None:
        self._path, self._key, self._count = receipts_file(data), key, count
        self._sealed: list[KeepSealed] = []
        self._came: list[ReceiptCame] = []
        self._timer: asyncio.TimerHandle | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._database: ReceiptDatabase | None = None
        self._is_refused = False

    def restored(self) -> list[bytes]:
        """Returns the rows of the newest batches of a former process; none if there is no database, or it does not
        open.
        """
        if not self._path.exists():
            return []
        try:
            return self._opened_database().newest()
        except (ReceiptsError, sqlite3.Error) as error:
            LogEvent.RECEIPTS_NOT_KEPT.say(log, error)
            return []

    def keep_row(self, effect: KeepSealed | ReceiptCame) -> None:
        """Writes a row soon."""
        if len(self._sealed) + len(self._came) >= WAITING_MAX:
            self._count(Count("receipts_lost"))
            return
        if isinstance(effect, KeepSealed):
            self._sealed.append(effect)
        else:
            self._came.append(effect)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_EVERY_S, self._write_rows)

    def close(self) -> None:
        """Writes what waits, and closes the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._hand_over()
        if self._thread is not None:
            self._thread.shutdown()
        if self._database is not None:
            self._database.close()

    def _write_rows(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        self._hand_over(lambda error, lost: loop.call_soon_threadsafe(self._note_disk, error, lost))

    def _hand_over(self, done: Callable[[Exception | None, int], object] = lambda error, lost: None) -> None:
        sealed, came = self._sealed, self._came
        self._sealed, self._came = [], []
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "receipts")

        def write() -> None:
            try:
                self._opened_database().write(sealed, came)
            except (ReceiptsError, sqlite3.Error, OSError) as error:
                done(error, len(sealed) + len(came))
            else:
                done(None, 0)

        self._thread.submit(write)

    def _opened_database(self) -> ReceiptDatabase:
        if self._database is None:
            self._database = ReceiptDatabase(self._path, self._key())
        return self._database

    def _note_disk(self, error: Exception | None, lost: int) -> None:
        if error is not None:
            self._count(Count("receipts_lost", lost))
            if not self._is_refused:
                LogEvent.RECEIPTS_NOT_KEPT.say(log, error)
        self._is_refused = error is not None
