"""Rows of a small micro-batch go to Spark with its plan, opened in the driver: no task in a Python worker is started.

A task in Python takes Spark some 30 ms of processor time for any amount of rows, and several turns of waiting
processes. Spark has a shorter way for its simple readers (`SimpleDataSourceStreamReader`): the driver hands over their
rows with the plan. Spark asks by class whether a reader is simple. Ours is a full reader, with limits and several
tasks, and calls itself simple only between a plan with its rows at hand and their collection (`SpoolStreamReader`).

Unreadable rows are left to a task, which tells the cause. Rows handed over are rows of the query as any others: Spark
keeps them in the driver's block store until the next plan. Not here: the choice of rows (`reader`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

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

    def read(
        self, extents: Sequence[ByteRange], held: Collection[str] | None, redriven_us: int | None
    ) -> list[Any] | None:
        """Record batches of a task; None where a task has to read them."""
        size_bytes = sum(each.end - each.start for each in extents)
        if HandsOver is None or self._options.extents is not None or size_bytes > HANDED_BYTES:
            return None
        try:
            if self._reader is None:
                self._reader = RowReader(self._options)
            return list(self._reader.read(*extents, held=held, redriven_us=redriven_us))
        except IngestError:
            return None
