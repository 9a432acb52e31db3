"""Numbers that windows left out are counted in rows, once, and closed windows are forgotten."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from spark_ingest.jobs.late_numbers import BATCHES_MAX, LateNumbers
from spark_ingest.jobs.queries import NUMBERS

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
    late.count(0, [window(0, 5), window(1, 2)])
    late.count(1, [window(1, 3), window(1, 4, "b")])
    late.progress([progress(0, 7)])
    assert (late.read, late.left_out) == (7, 0)
    late.progress([progress(0, 7), progress(1, 9), progress(2, 50)])
    assert (late.read, late.left_out) == (16, 4), "batch 2 has not shown its windows"


def test_a_batch_that_comes_again_changes_nothing() -> None:
    late = LateNumbers()
    for _ in range(2):
        late.count(0, [window(0, 5)])
    late.progress([progress(0, 5)])
    assert (late.read, late.left_out) == (5, 0)


def test_windows_behind_the_watermark_and_batches_without_progress_are_forgotten() -> None:
    late = LateNumbers()
    late.count(0, [window(0, 5), window(10, 1)])
    late.progress([progress(0, 6, "2026-01-01T00:05:00.000Z")])
    assert list(late._windows) == [(MIDNIGHT + timedelta(minutes=10), "a")]
    for batch in range(2 * BATCHES_MAX):
        late.count(batch, [])
    assert len(late._counted) == BATCHES_MAX
