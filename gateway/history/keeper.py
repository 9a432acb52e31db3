"""The keeper of a replica's history: the archive in a thread, behind the effects of a node.

Traffic never waits for the disk: records are written behind the traffic, and a page goes to the node after the read. A
refusing disk stops the history alone; writes are tried again, and the records of the meantime are missing and counted.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from bridge.contract import Count, Event, HistoryRecord, Recall, Recalled, Record, RecordEra
from bridge.document import History
from gateway.base.figures import HistoryState
from gateway.base.log_events import LogEvent
from gateway.history.archive import Archive, HistoryError, Reach

log = logging.getLogger("veilmq.history")

WAITING_BYTES_MAX = 64 << 20
"""Bytes on their way to the disk, of which one publisher has at most as many as it leaves free for others; what passes
beyond them is missing in the history.
"""
RETRY_S = 10.0  # after a refusal of the disk
KEEP_EVERY_S = 10.0  # how often it is looked for what is too old, and how far histories reach
T = TypeVar("T")


class HistoryKeeper:
    """The history of a replica. Every method belongs to the event loop's thread.

    `histories`: of the scopes in force, by number. `handle` takes what was read. Nothing is opened before it is needed.
    """

    def __init__(
        self,
        directory: Path,
        key: Callable[[], bytes],
        histories: Callable[[], Mapping[int, History]],
        handle: Callable[[Event], object],
        count: Callable[[Count], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._key = directory, key
        self._histories, self._handle, self._count, self._clock = histories, handle, count, clock
        self._thread: ThreadPoolExecutor | None = None
        self._archive: Archive | None = None
        self._waiting_bytes = 0
        self._waiting_of: Counter[bytes] = Counter()  # by publisher
        self._refused_at = 0.0
        self._kept_at = 0.0
        self.refused = ""
        """Why the disk takes nothing; empty while it does."""
        self.reach: list[Reach] = []
        """How far each history reaches, as it was looked at last."""

    def history_states(self, scopes: Iterable[tuple[str, int]]) -> list[HistoryState]:
        """Returns how far the history of each scope reaches. `scopes`: filter and number of each."""
        reach = {one.scope: one for one in self.reach}
        return [
            HistoryState(name, one.first_ms, one.last_ms, one.bytes, self.refused)
            if (one := reach.get(number)) is not None
            else HistoryState(name, refused=self.refused)
            for name, number in scopes
        ]

    # ------------------------------------------------------------------------------------------- effects

    def write_record(self, effect: Record) -> None:
        """Writes behind the traffic."""
        of_keys = sum(len(key.shares) for key in effect.keys)
        is_refused = bool(self.refused) and self._clock() - self._refused_at < RETRY_S
        is_refused |= self._waiting_bytes + of_keys > WAITING_BYTES_MAX
        records, sizes = ([], Counter[bytes]()) if is_refused else self._admitted(effect.records, of_keys)
        if lost := len(effect.records) - len(records):
            self._count(Count("history_lost", lost))
        if is_refused or not (records or effect.keys):
            return
        size = sizes.total() + of_keys
        self._waiting_bytes += size
        self._waiting_of += sizes
        histories, now = dict(self._histories()), self._clock()

        def written(error: Exception | None) -> None:
            self._waiting_bytes -= size
            self._waiting_of -= sizes
            self._note_refusal(error)
            if error is not None:
                self._count(Count("history_lost", len(records)))

        self._run_in_thread(lambda archive: archive.write(records, effect.keys, histories, now), written)
        self.tidy()

    def _admitted(self, records: Sequence[HistoryRecord], size: int) -> tuple[list[HistoryRecord], Counter[bytes]]:
        """Returns the records for which there is room beside `size` bytes, and their bytes by publisher."""
        admitted, sizes = list[HistoryRecord](), Counter[bytes]()
        free = WAITING_BYTES_MAX - self._waiting_bytes - size
        for record in records:
            publisher, length = record.position.publisher, len(record.body)
            if self._waiting_of[publisher] + sizes[publisher] + length <= free:
                admitted.append(record)
                sizes[publisher] += length
                free -= length
        return admitted, sizes

    def record_era(self, effect: RecordEra) -> None:
        """Keeps an era."""
        self._run_in_thread(lambda archive: archive.write_era(effect), self._note_refusal)

    def recall(self, effect: Recall) -> None:
        """Reads a page for the node; an empty page, if the disk refuses."""

        def read(archive: Archive) -> None:
            page = archive.read(effect)
            loop.call_soon_threadsafe(self._handle, page)

        def failed(error: Exception | None) -> None:
            if error is not None:
                self._note_refusal(error)
                self._handle(Recalled(effect.peer, effect.request))

        loop = asyncio.get_running_loop()
        self._run_in_thread(read, failed)

    def tidy(self) -> None:
        """Erases what is too old, and looks how far histories reach, now and then. For a caller that has a history."""
        histories, now = dict(self._histories()), self._clock()
        if 0 <= now - self._kept_at < KEEP_EVERY_S or not (histories or self._directory.exists()):
            return
        self._kept_at = now

        def look(archive: Archive) -> None:
            archive.erase_outdated(histories, now)
            reach = archive.reach()
            loop.call_soon_threadsafe(setattr, self, "reach", reach)

        loop = asyncio.get_running_loop()
        self._run_in_thread(look, self._note_refusal)

    def _note_refusal(self, error: Exception | None) -> None:
        """Says a refusal of the disk once, and the end of the refusal once."""
        why = "" if error is None else str(error) or type(error).__name__
        if why:
            self._refused_at = self._clock()
        if bool(why) is not bool(self.refused):
            (LogEvent.HISTORY_REFUSED if why else LogEvent.HISTORY_TAKEN).say(log, *([why] if why else []))
        self.refused = why

    # -------------------------------------------------------------------------------------------- thread

    def _run_in_thread(self, work: Callable[[Archive], None], done: Callable[[Exception | None], None]) -> None:
        """Does something with the archive, in its thread; `done` is called on the event loop."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "history")

        def in_thread() -> None:
            error: Exception | None = None
            try:
                if self._archive is None:
                    self._archive = Archive(self._directory, self._key())
                work(self._archive)
            except (sqlite3.Error, OSError, HistoryError) as refusal:
                error = refusal
            if not loop.is_closed():
                loop.call_soon_threadsafe(done, error)

        self._thread.submit(in_thread)

    def erase(self) -> None:
        """Erases everything: this is no replica any more."""
        if self._thread is not None or self._directory.exists():
            self._run_in_thread(lambda archive: archive.erase_all(), self._note_refusal)

    def close(self) -> None:
        """Writes all pending records, and closes the files."""
        if self._thread is None:
            return
        if self._archive is not None:
            self._thread.submit(self._archive.close)
        self._thread.shutdown()
        self._thread = None
