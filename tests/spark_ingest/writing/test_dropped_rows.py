"""Rows that a watermark dropped are counted and told; redriven rows are not dropped."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from spark_ingest.writing.repeats import QUERIES_MAX, DroppedRows

PATIENCE_S = 120.0


def progress(query: str, *dropped: int) -> Any:
    operators = [SimpleNamespace(numRowsDroppedByWatermark=number) for number in dropped]
    return SimpleNamespace(progress=SimpleNamespace(name=query, id="id", stateOperators=operators))


def test_dropped_rows_are_told_with_the_query_and_the_cure(caplog: pytest.LogCaptureFixture) -> None:
    told = DroppedRows()
    with caplog.at_level(logging.WARNING):
        for each in (progress("plant"), progress("plant", 0), progress("plant", 2, 1), progress("plant", 4)):
            told.onQueryProgress(each)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "veilmq: the watermark of query plant dropped 3 rows as too late, 3 in all",
        "veilmq: the watermark of query plant dropped 4 rows as too late, 7 in all",
    ]
    for number in range(QUERIES_MAX + 1):
        told.onQueryProgress(progress(f"q{number}", 1))
    assert len(told.counts) == QUERIES_MAX


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("columns", "kept"), [("*", 4), ("* except (progress_at)", 3)])
def test_a_redriven_row_of_long_ago_is_no_late_row(spark: Any, tmp_path: Path, columns: str, kept: int) -> None:
    """The last micro-batch redrives a row that was received three hours before. Without the column it is dropped.

    Spark drops by the watermark of the micro-batch before.
    """
    from spark_ingest.writing.repeats import drop_repeats

    made = "array(named_struct('name', 'k', 'value', 'x')) AS properties"
    times = [("10:00", "10:00"), ("13:00", "13:00"), ("13:01", "13:01"), ("10:01", "13:01")]
    for number, (received, progressed) in enumerate(times):
        row = (
            f"SELECT 'gw' AS publisher, bigint({number}) AS sequence, {made}, "
            f"timestamp '2026-01-01 {received}:00' AS received_at, "
            f"timestamp '2026-01-01 {progressed}:00' AS progress_at"
        )
        before = set((tmp_path / "rows").glob("*.parquet"))
        spark.sql(row).coalesce(1).write.mode("append").parquet(str(tmp_path / "rows"))
        for each in set((tmp_path / "rows").glob("*.parquet")) - before:
            os.utime(each, (number * 60.0, number * 60.0))  # Spark takes the oldest first
    rows = spark.readStream.schema(spark.read.parquet(str(tmp_path / "rows")).schema)
    rows = rows.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "rows")).selectExpr(columns)
    found: list[Any] = []
    query = drop_repeats(rows).writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination(PATIENCE_S)
    assert sorted(row.sequence for row in found) == list(range(kept))
