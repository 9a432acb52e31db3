"""Dropping repeated rows of a writer: the other end of `outgoing_rows`.

A repeated task of `writer` publishes its rows again, under their former `veilmq-id`. A reader with this
source sees the id in column properties. Rows of other publishers have none; they come once already, and stay.
"""

from __future__ import annotations

from typing import Any

from spark_ingest.writing.outgoing_rows import ID_PROPERTY

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
    earlier micro-batches would be dropped unseen: no row of this source is. If one was, the log says how many
    (`dropped_rows`).

    State of a stream holds the ids of that time. A publisher could choose the id of another one: the publisher is part
    of what is compared.
    """
    from spark_ingest.writing.dropped_rows import say_dropped  # noqa: PLC0415  Spark takes a second to import

    rows = with_id(rows)
    if not rows.isStreaming:
        return rows.dropDuplicates(["publisher", "veilmq_id"])
    say_dropped(rows.sparkSession)
    time = PROGRESS if PROGRESS in rows.columns else RECEIVED
    return rows.withWatermark(time, within).dropDuplicatesWithinWatermark(["publisher", "veilmq_id"])
