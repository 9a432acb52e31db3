"""Whether a row costs the same however many receivers filled the spool, and a plan however much lies in it.

Large spools are copies of the segments of a small one, under names of their own.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.source.reader import SpoolStreamReader
from spark_ingest.spool.segments import segment_numbers, segment_path
from spark_ingest.spool.view import SpoolView

BATCH_ROWS = 500
PLANS = 5
TRIGGER_S = 0.1
"""Micro-batches are further apart than that; CPU time is taken."""
SUFFIXES = ("index", "state")
HEAD_BYTES = 4096
"""The schema of a segment, which says where it belongs, lies in them."""


def copied(source: Path, root: Path, receivers: int, segments: int) -> Path:
    """A spool of so many receivers with so many segments each, out of those of `source` (a receiver's directory)."""
    numbers = segment_numbers(source)[:-1]  # full ones
    for receiver in range(receivers):
        directory = root / f"rec{receiver}"  # as long as "main": what an index says of bytes stays true
        directory.mkdir(parents=True)
        for number in range(segments):
            original = numbers[(receiver * segments + number) % len(numbers)]
            for suffix in SUFFIXES:
                segment_path(directory, number + 1, suffix).hardlink_to(segment_path(source, original, suffix))
            data = segment_path(source, original).read_bytes()
            old, new = (f"{each.name}/{n:08d}".encode() for each, n in ((source, original), (directory, number + 1)))
            segment_path(directory, number + 1).write_bytes(data[:HEAD_BYTES].replace(old, new) + data[HEAD_BYTES:])
    return root


def cpu_us_a_row(root: Path, keys: Path) -> float:
    """Of opening all rows of a spool in this process."""
    reader = RowReader(parse_options({"spool": str(root), "grants": str(keys)}))
    view = SpoolView(root)
    began = time.process_time()
    rows = sum(batch.num_rows for extent in view.ranges({}, view.latest(), 2) for batch in reader.read(extent))
    return (time.process_time() - began) / rows * 1e6


def plan_ms(root: Path, keys: Path, at_end: bool) -> float:
    """Median CPU time of what the driver does for a micro-batch: its end, its tasks, the lag, the last commit.

    `at_end`: the query has read nearly all, and another consumer keeps it from being trimmed.
    """
    told = {"spool": str(root), "grants": str(keys), "max_rows_per_batch": str(BATCH_ROWS)}
    reader = SpoolStreamReader(parse_options(told), lambda _: _no_client())
    other = SpoolStreamReader(parse_options({**told, "consumer": "other"}), lambda _: _no_client())
    other.initialOffset()
    start = reader.initialOffset()
    view = SpoolView(root)
    if at_end:
        latest = view.latest()
        start = {name: {"segment": at["segment"] - 1, "byte": 0} for name, at in latest.items()}
    took_s = []
    for _ in range(PLANS):
        time.sleep(TRIGGER_S)
        began = time.process_time()
        end = reader.latestOffset(start, ReadMaxRows(BATCH_ROWS))
        assert reader.partitions(start, end)
        reader.reportLatestOffset()
        reader.commit(start)
        took_s.append(time.process_time() - began)
        start = end
    reader.stop()
    other.stop()
    shutil.rmtree(root / "consumers")
    return statistics.median(took_s) * 1000


def _no_client() -> None:
    raise AssertionError("nothing is received here")
