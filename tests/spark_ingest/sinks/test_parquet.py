"""Parquet with manifests, read by DuckDB: a batch is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_ingest.sinks.sink import BatchName
from tests.spark_ingest.sink_targets import QUERY, Parquet

pytest.importorskip("duckdb")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_parquet_counts_by_manifest(rows: Any, tmp_path: Path) -> None:
    """A batch that comes again, one of two drivers, one that died before its manifest, days, columns, merged files."""
    target, place = Parquet(str(tmp_path)), str(tmp_path)
    target.sink(rows(1, 2), 0)
    target.sink(rows(1, 2), 0)
    zombie = Parquet(place)
    assert not zombie.sink.has(BatchName(QUERY, 1))
    target.sink(rows(3, day=23, more="1.5D AS value"), 1)
    zombie.sink.commit(rows(3, day=23), BatchName(QUERY, 1))
    abandoned = tmp_path / "rows" / QUERY / "000000000002-dead" / "day=2026-11-22"
    abandoned.mkdir(parents=True)
    (abandoned / "part.parquet").write_bytes(b"half")
    target.sink(rows(4), 2)
    wanted = [(1, "2026-11-22", None), (2, "2026-11-22", None), (3, "2026-11-23", 1.5), (4, "2026-11-22", None)]
    assert sorted(target.table("sequence, day::text, value")) == wanted
    target.sink(rows(5), 3)  # files are merged with it
    merged = sorted(target.table("sequence, day::text, value"))
    assert merged == [*wanted, (5, "2026-11-22", None)]
    assert not abandoned.exists()
    assert not zombie.sink.has(BatchName(QUERY, 4))
    zombie.sink.commit(rows(4), BatchName(QUERY, 2))  # wakes when its batch was merged
    for number in range(4, 8):
        target.sink(rows(number + 2), number)
    assert sorted(row[0] for row in target.table("sequence")) == list(range(1, 10))
    files = list(tmp_path.rglob("*.parquet"))
    assert len(target.table("DISTINCT filename")) == 2, "a file a day"
    assert len(files) <= 2 + 2 + 8, "what the merging before left is gone"
