"""Rows of a small micro-batch go to Spark with its plan, opened in the driver: no task in a Python worker is started.

A task in Python takes Spark some 30 ms of processor time for any amount of rows, and several turns of waiting
processes. Spark has a shorter way for its simple readers (`SimpleDataSourceStreamReader`): the driver hands over their
rows with the plan. Spark asks by class whether a reader is simple. Ours is a full reader, with limits and several
tasks, and calls itself simple only between a plan with its rows at hand and their collection (`SpoolStreamReader`).

Rows are opened in a thread of their own as soon as the end of the micro-batch is known: Spark writes that end down and
plans meanwhile, which takes longer.

Unreadable rows are left to a task, which tells the cause. Rows handed over are rows of the query as any others: Spark
keeps them in the driver's block store until the next plan. Not here: the choice of rows (`reader`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import datasource_internal

from spark_ingest.errors import IngestError
from spark_ingest.opening import RowReader
from spark_ingest.options import MissingKey, Options
from spark_ingest.spool import ByteRange

HANDED_BYTES = 1 << 20
"""Sealed rows of a micro-batch that are handed over; a task is quicker with more."""

HandsOver: Any = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)
"""What Spark asks for. None in a Spark that does not: there, every row comes by a task."""


class HandedRows:
    """Opens what is handed over; keeps opened keys over micro-batches, as a worker process does."""

    def __init__(self, options: Options) -> None:
        # Nobody waits for a key here: the receiver may be of this process, and what comes of it is for a task to tell.
        fails = options.on_missing_key is MissingKey.WAIT
        self._options = replace(options, on_missing_key=MissingKey.FAIL) if fails else options
        self._reader: RowReader | None = None
        self._thread = ThreadPoolExecutor(1, "veilmq-opening")
        self._ahead: tuple[_Asked, Future[list[Any] | None]] | None = None

    def begin_opening(
        self, extents: Sequence[ByteRange], held: Collection[str] | None, redriven_us: int | None
    ) -> None:
        """Begins to open what `read` will be asked for."""
        asked = _Asked(tuple(extents), held, redriven_us)
        self._ahead = asked, self._thread.submit(self._opened_rows, asked)

    def read(
        self, extents: Sequence[ByteRange], held: Collection[str] | None, redriven_us: int | None
    ) -> list[Any] | None:
        """Record batches of a task; None where a task has to read them."""
        asked = _Asked(tuple(extents), held, redriven_us)
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != asked:
            return self._thread.submit(self._opened_rows, asked).result()
        return ahead[1].result()

    def close(self) -> None:
        """Ends the thread, after the rows that it is at."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _opened_rows(self, asked: _Asked) -> list[Any] | None:
        size_bytes = sum(each.end - each.start for each in asked.extents)
        if HandsOver is None or self._options.extents is not None or size_bytes > HANDED_BYTES:
            return None
        try:
            if self._reader is None:
                self._reader = RowReader(self._options)
            return list(self._reader.read(*asked.extents, held=asked.held, redriven_us=asked.redriven_us))
        except IngestError:
            return None


class _Asked(NamedTuple):
    """Rows to open, as `RowReader.read` takes them."""

    extents: tuple[ByteRange, ...]
    held: Collection[str] | None
    redriven_us: int | None
