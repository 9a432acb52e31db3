"""Tests that a table which the driver writes passes, of Delta Lake and of Iceberg."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_ingest.errors import BadOption
from spark_ingest.sinks.sink import BatchName
from tests.spark_ingest.sink_targets import QUERY, Delta, DriverWritten

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("polars")

LATE_EVENING = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)
"""The next day in Berlin, whose time Spark's session may have."""


class Batch:
    """Rows as a sink gets them of Spark, without Spark."""

    def __init__(self, *sequences: int, day: int = 22, **more: Any) -> None:
        times = pa.array([LATE_EVENING.replace(day=day)] * len(sequences), pa.timestamp("us", "Europe/Berlin"))
        told = {"publisher": ["someone"] * len(sequences), "sequence": pa.array(sequences, pa.int64())}
        self._rows = pa.table({**told, "published_at": times, **more})

    def toArrow(self) -> pa.Table:
        return self._rows


def sequences(target: DriverWritten) -> list[int]:
    return sorted(sequence for _, sequence in target.found())


class DriverWrittenTests:
    """Tests of a kind of table."""

    kind: type[Any]

    def test_a_batch_that_comes_again_is_not_written_again(self, tmp_path: Path) -> None:
        """The last one or an older one, nor by a driver that is new; batch reads have names of their own."""
        target = self.kind(str(tmp_path / "table"), merge_after=0)
        for number, batch in ((0, Batch(1, 2)), (1, Batch(3)), (1, Batch(3)), (0, Batch(1, 2))):
            target.sink(batch, number)
        again = self.kind(str(tmp_path / "table"))
        for number, batch in ((1, Batch(3)), (2, Batch(4))):
            again.sink(batch, number)
        for name in ("november", "november", "october"):
            again.sink.write(Batch(*range(10, 12)), name)
        assert sequences(target) == [1, 2, 3, 4, 10, 10, 11, 11]

    @pytest.mark.parametrize("batches_before", [0, 1])
    def test_a_batch_of_two_drivers_is_there_once(self, tmp_path: Path, batches_before: int) -> None:
        """One taken for dead and its successor look at the table, then both commit. The table is new, or not."""
        first, successor = (self.kind(str(tmp_path / "table")) for _ in range(2))
        for number in range(batches_before):
            first.sink(Batch(1, 2), number)
        name = BatchName(QUERY, batches_before)
        assert not first.sink.has(name)
        assert not successor.sink.has(name)
        successor.sink.commit(Batch(3, 4), name)
        with contextlib.suppress(deltalake.exceptions.CommitFailedError):
            first.sink.commit(Batch(3, 4), name)
        assert sequences(first) == [*([1, 2] * batches_before), 3, 4]

    def test_days_are_partitions_and_columns_may_come(self, tmp_path: Path) -> None:
        """Days in UTC, whatever the zone of Spark's session."""
        target = self.kind(str(tmp_path / "table"))
        target.sink(Batch(1), 0)
        target.sink(Batch(2, day=23, unit=["bar"]), 1)
        target.sink(Batch(3), 2)
        frame = target.frame().sort("sequence")
        assert frame["unit"].to_list() == [None, "bar", None]
        assert [each.astimezone(UTC) for each in frame["published_at"]] == [
            LATE_EVENING, LATE_EVENING.replace(day=23), LATE_EVENING,
        ]  # fmt: skip
        folders = {path.parent.name.split("=")[-1] for path in (tmp_path / "table").rglob("*.parquet")}
        assert folders == {"2026-11-22", "2026-11-23"}

    def test_small_files_are_merged(self, tmp_path: Path) -> None:
        target = self.kind(str(tmp_path / "table"), merge_after=10)
        for number in range(10):
            target.sink(Batch(number), number)
        assert sequences(target) == list(range(10))
        if self.kind is Delta:
            assert len(deltalake.DeltaTable(target.directory).file_uris()) == 1
        else:
            assert len(list(target.table().scan().plan_files())) == 1

    def test_rows_without_the_day_are_refused_with_a_line(self, tmp_path: Path) -> None:
        target = self.kind(str(tmp_path / "table"), day="at")
        with pytest.raises(BadOption, match="no column at; say day=COLUMN"):
            target.sink(Batch(1), 0)
        with pytest.raises(BadOption, match="no name"):
            target.sink.write(Batch(1), "../x")
