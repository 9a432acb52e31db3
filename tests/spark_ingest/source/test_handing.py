"""Rows of a small micro-batch come with its plan: the same rows as by a task, and a task where the driver cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.opening import RowReader
from spark_ingest.options import parse_options
from spark_ingest.spool import Offset
from tests.spark_ingest.site import Site
from tests.spark_ingest.source.test_source import behind, drain
from tests.waits import wait_until

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_ingest.source import handing
from spark_ingest.source.reader import SpoolStreamReader
from spark_ingest.source.source import VeilMQDataSource


def no_client(_: object) -> Any:
    raise AssertionError("nobody receives here")


def sequences(reader: SpoolStreamReader, start: Offset, end: Offset) -> list[int]:
    """Of the rows that are handed over."""
    return [number for batch in reader.getCache(start, end) or () for number in batch.column("sequence").to_pylist()]


def planned(site: Site, **more: str) -> tuple[SpoolStreamReader, list[Any], tuple[Offset, Offset]]:
    """A reader behind the plan of all that there is."""
    told = {"spool": str(site.spool), "grants": str(site.grants)} | more
    reader = SpoolStreamReader(parse_options(told), no_client)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    return reader, list(reader.partitions(start, end)), (start, end)


def test_rows_are_handed_over_once_and_are_those_of_a_task(tmp_path: Path) -> None:
    site = Site(None, tmp_path)
    site.fill(30)
    reader, (part,), offsets = planned(site)
    assert isinstance(reader, handing.HandsOver), "what Spark asks before it takes the rows"
    rows = [batch.to_pylist() for batch in reader.getCache(*offsets) or ()]
    assert [len(each) for each in rows] == [30]
    assert rows == [batch.to_pylist() for batch in reader.read(part)]
    assert not isinstance(reader, handing.HandsOver), "Spark asks such readers for no lag"
    assert reader.getCache(*offsets) is None
    reader.stop()


@pytest.mark.parametrize("on_missing_key", ["fail", "wait"])
def test_who_has_no_keys_here_leaves_rows_to_a_task_at_once(tmp_path: Path, on_missing_key: str) -> None:
    site = Site(None, tmp_path)
    site.fill(30)
    site.grants.write_text('{"veilmq_grant":2,"scopes":[]}')
    reader, parts, offsets = planned(site, onMissingKey=on_missing_key)
    assert len(parts) == 1
    assert not isinstance(reader, handing.HandsOver)
    assert reader.getCache(*offsets) is None
    reader.stop()


def test_what_is_larger_is_for_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(None, tmp_path)
    site.fill(30)
    monkeypatch.setattr(handing, "HANDED_BYTES", 1_000)
    reader, _, offsets = planned(site)
    assert reader.getCache(*offsets) is None
    reader.stop()


def test_rows_are_opened_while_spark_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(None, tmp_path)
    site.fill(20)
    opened: list[str] = []

    class Rows(RowReader):
        def read(self, *extents: Any, **more: Any) -> Iterator[Any]:
            opened.append(threading.current_thread().name)
            return super().read(*extents, **more)

    monkeypatch.setattr(handing, "RowReader", Rows)
    reader = SpoolStreamReader(parse_options({"spool": str(site.spool), "grants": str(site.grants)}), no_client)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert wait_until(lambda: len(opened) == 1), "before Spark asks for the plan"
    assert opened[0] != threading.current_thread().name
    reader.partitions(start, end)
    assert sequences(reader, start, end) == list(range(1, 21))
    assert len(opened) == 1
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert len(opened) == 1, "nothing is new"
    reader.stop()


def test_a_plan_of_other_rows_than_were_opened_ahead_has_its_own(tmp_path: Path) -> None:
    """Spark plans a micro-batch of before once more, and stops a query whose end it has already asked for."""
    site = Site(None, tmp_path)
    site.fill(20)
    reader = SpoolStreamReader(parse_options({"spool": str(site.spool), "grants": str(site.grants)}), no_client)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    site.fill(10)
    later = reader.latestOffset(start, ReadAllAvailable())
    for at, last in ((end, 20), (later, 30), (end, 20)):
        reader.partitions(start, at)
        assert sequences(reader, start, at) == list(range(1, last + 1))
    reader.stop()


class NoTasks(SpoolStreamReader):
    """Whose rows no worker may read."""

    def read(self, _: Any) -> Iterator[Any]:
        raise AssertionError("a task in a Python worker")


class NoTasksSource(VeilMQDataSource):
    """With such readers."""

    @classmethod
    def name(cls) -> str:
        """Beside the real one."""
        return "veilmq_without_tasks"

    def streamReader(self, schema: Any) -> SpoolStreamReader:
        """For `readStream`."""
        return NoTasks(self._checked(schema), self.connect)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_takes_them_starts_no_worker_and_still_tells_the_lag(site: Site) -> None:
    """Spark asks by a class that is not of its public interface: whether it still does, this test tells."""
    site.spark.dataSource.register(NoTasksSource)
    site.fill(60, per_group=20)
    rows = site.stream(NoTasksSource.name(), max_rows_per_batch="20")
    found, progress = drain(site, "handed", rows)
    assert found == list(range(1, 61))
    assert behind(progress) == [40, 20, 0]
