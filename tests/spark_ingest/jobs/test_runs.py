"""Runs of the ready-made jobs: their command, what a user gets wrong, what Spark's failures become.

Numbers that windows left out are counted in rows, once, and closed windows are forgotten.

A stopped job says how many sealed batches it left.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_ingest.jobs.queries import NUMBERS
from spark_ingest.jobs.runs import BATCHES_MAX, LateNumbers, cause, unread_sealed_batches
from spark_ingest.source.marks import MARK
from spark_ingest.spool import Offset, SpoolView
from tests.spark_ingest.jobs.test_queries import Spool


def finished_at(end: Offset | None) -> Any:
    return SimpleNamespace(sources=[SimpleNamespace(endOffset=None if end is None else json.dumps(end))])


def test_what_lies_behind_the_last_micro_batch_was_not_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    ends: list[Offset] = []
    for piece in range(3):
        for number in range(5):
            spool.publish("plant/a", b"1", piece + number / 10)
        spool.write()
        ends.append({MARK: {"owner": "x"}, **SpoolView(spool.root).latest()})
    told = [finished_at(end) for end in ends]
    left = [unread_sealed_batches(spool.root, told[:count]) for count in range(4)]
    assert left == [15, 10, 5, 0]
    assert unread_sealed_batches(spool.root, [finished_at(None)]) == 15, "a query that has begun"


MIDNIGHT = datetime(2026, 1, 1)  # noqa: DTZ001  as Spark's rows have times


def window(minute: int, count: int, topic: str = "a") -> dict[str, Any]:
    return {
        "start": MIDNIGHT + timedelta(minutes=minute),
        "end": MIDNIGHT + timedelta(minutes=minute + 1),
        "topic": topic,
        "count": count,
    }


def progress(batch: int, rows: int, watermark: str | None = None) -> Any:
    times = {} if watermark is None else {"watermark": watermark}
    return SimpleNamespace(batchId=batch, observedMetrics={NUMBERS: {"rows": rows}}, eventTime=times)


def test_what_no_window_counted_was_left_out() -> None:
    late = LateNumbers()
    late.count_windows(0, [window(0, 5), window(1, 2)])
    late.count_windows(1, [window(1, 3), window(1, 4, "b")])
    late.progress([progress(0, 7)])
    assert (late.read, late.left_out) == (7, 0)
    late.progress([progress(0, 7), progress(1, 9), progress(2, 50)])
    assert (late.read, late.left_out) == (16, 4), "batch 2 has not shown its windows"


def test_a_batch_that_comes_again_changes_nothing() -> None:
    late = LateNumbers()
    for _ in range(2):
        late.count_windows(0, [window(0, 5)])
    late.progress([progress(0, 5)])
    assert (late.read, late.left_out) == (5, 0)


def test_windows_behind_the_watermark_and_batches_without_progress_are_forgotten() -> None:
    late = LateNumbers()
    late.count_windows(0, [window(0, 5), window(10, 1)])
    late.progress([progress(0, 6, "2026-01-01T00:05:00.000Z")])
    assert list(late._windows) == [(MIDNIGHT + timedelta(minutes=10), "a")]
    for batch in range(2 * BATCHES_MAX):
        late.count_windows(batch, [])
    assert len(late._counted) == BATCHES_MAX


def test_a_failed_query_is_told_in_one_line() -> None:
    failure = (
        "[STREAM_FAILED] Query [id = 1] terminated\nTraceback (most recent call last):\n"
        '  File "x.py", line 1\nspark_ingest.errors.GrantsError: grants=f is not a grant; ask\n'
        "\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted"
    )
    assert cause(failure) == "spark_ingest.errors.GrantsError: grants=f is not a grant; ask"
    assert cause("something else\nmore") == "something else"
