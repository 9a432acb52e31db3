"""Dropping repeated rows of a writer: the other end of `outgoing_rows`.

A repeated task of `writer` publishes its rows again, under their former `veilmq-id`. A reader with this
source sees the id in column properties. Rows of other publishers have none; they come once already, and stay.

Rows that the watermark of a query dropped, counted from Spark's progress and told in the log.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_ingest.writing.outgoing_rows import ID_PROPERTY

QUERIES_MAX = 256
"""Queries that are counted; of more, those go first that were silent for longest."""
_log = logging.getLogger(__name__)
_listened: WeakSet[Any] = WeakSet()


def dropped_rows(progress: Any) -> int:
    """Returns the rows of a micro-batch that watermarks dropped. `progress`: a StreamingQueryProgress."""
    return sum(int(each.numRowsDroppedByWatermark) for each in progress.stateOperators)


class DroppedRows(StreamingQueryListener):
    """A listener that tells the log of dropped rows, a line for each micro-batch with some."""

    def __init__(self) -> None:
        self.counts: OrderedDict[str, int] = OrderedDict()
        """Dropped rows by query, since the listener began."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark chose these names
        """Does nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Counts the micro-batch."""
        number = dropped_rows(event.progress)
        if not number:
            return
        query = event.progress.name or str(event.progress.id)
        self.counts[query] = self.counts.pop(query, 0) + number
        while len(self.counts) > QUERIES_MAX:
            self.counts.popitem(last=False)
        _log.warning(
            "veilmq: the watermark of query %s dropped %d rows as too late, %d in all; a longer watermark keeps such "
            "rows, and redriven rows need column progress_at",
            query,
            number,
            self.counts[query],
        )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Does nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Does nothing."""


def say_dropped(spark: Any) -> None:
    """Adds the listener to a session; once is enough, again does no harm."""
    if spark not in _listened:
        _listened.add(spark)
        spark.streams.addListener(DroppedRows())


WITHIN = "1 hour"
PROGRESS, RECEIVED = "progress_at", "received_at"
"""Columns for the watermark, the better first: rows without the first are never redriven rows."""


def with_id(rows: Any) -> Any:
    """Returns telemetry rows with a column `veilmq_id`: the writer's id, or else the publication's own,
    PUBLISHER/SEQUENCE.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    told = f.filter("properties", lambda pair: pair["name"] == ID_PROPERTY)
    own = f.concat_ws("/", "publisher", f.col("sequence").cast("string"))
    return rows.withColumn("veilmq_id", f.coalesce(f.try_element_at(told["value"], f.lit(1)), own))


def drop_repeats(rows: Any, within: str = WITHIN) -> Any:
    """Returns the first row of each id, in a stream or a batch; in a stream, of repeats coming `within` so long.

    The time of a row is its time of reception; a redriven row's is that of its micro-batch (`progress_at`, which a
    query with `onMissingKey=quarantine` has unless option `columns` leaves it out). A row `within` before the newest of
    earlier micro-batches would be dropped unseen: no row of this source is. If one was, the log says how many.

    State of a stream holds the ids of that time. A publisher could choose the id of another one: the publisher is part
    of what is compared.
    """
    from spark_ingest.writing.repeats import say_dropped  # noqa: PLC0415  Spark takes a second to import

    rows = with_id(rows)
    if not rows.isStreaming:
        return rows.dropDuplicates(["publisher", "veilmq_id"])
    say_dropped(rows.sparkSession)
    time = PROGRESS if PROGRESS in rows.columns else RECEIVED
    return rows.withWatermark(time, within).dropDuplicatesWithinWatermark(["publisher", "veilmq_id"])
