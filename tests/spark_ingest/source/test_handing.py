"""Rows of a small micro-batch come with its plan: the same rows as by a task, and a task where the driver cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.options import parse_options
from spark_ingest.spool import Offset
from tests.spark_ingest.site import Site
from tests.spark_ingest.source.test_source import behind, drain

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_ingest.source import handing
from spark_ingest.source.reader import SpoolStreamReader
from spark_ingest.source.source import VeilMQDataSource


def planned(site: Site, **more: str) -> tuple[SpoolStreamReader, list[Any], tuple[Offset, Offset]]:
    """A reader behind the plan of all that there is."""
    told = {"spool": str(site.spool), "grants": str(site.grants)} | more
    reader = SpoolStreamReader(parse_options(told), lambda _: pytest.fail("nobody receives here"))
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
