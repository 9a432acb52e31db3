"""What a query passes over for want of a key comes later, once, whatever dies and whenever the key comes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from keys.envelope import KeyName
from spark_ingest.errors import GrantsError, SpoolError
from spark_ingest.options import parse_options
from spark_ingest.redrive import redrive
from spark_ingest.source.reader import SpoolStreamReader
from spark_ingest.spool.segments import Offset, segment_numbers
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.region import NOW, write_grants

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable


class Query:
    """A query with a checkpoint and a sink that keeps a micro-batch once, as Spark drives them."""

    def __init__(self, job: Job, **options: str) -> None:
        told = {"spool": str(job.root), "grants": str(job.grants), "onMissingKey": "quarantine"} | options
        self._options = parse_options(told)
        self._offsets: list[Offset] = []
        self._sink: dict[int, list[bytes]] = {}
        self.progress: dict[bytes, datetime] = {}
        """Column `progress_at` of each row."""

    def run(self, *, dies: str = "") -> None:
        """All that there is. `dies`: after the plan of a micro-batch was logged, or after it was read."""
        for _ in self._steps():
            if dies == "read" or (dies == "planned" and not self._done):
                return

    def _steps(self) -> Iterator[None]:
        reader = SpoolStreamReader(self._options, lambda _: None)  # type: ignore[arg-type, return-value]
        reader.prepareForTriggerAvailableNow()
        begin = reader.initialOffset()
        try:
            while True:
                batch = len(self._sink)
                start = self._offsets[batch - 1] if batch else begin
                self._done = False
                if len(self._offsets) == batch:
                    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
                    if end == start:
                        return
                    self._offsets.append(end)
                parts = reader.partitions(start, self._offsets[batch])
                yield
                read = [row for part in parts for rows in reader.read(part) for row in rows.to_pylist()]
                self._rows = [row["payload"] for row in read]
                self.progress |= {row["payload"]: row["progress_at"] for row in read}
                self._done = True
                yield
                self._sink[batch] = self._rows
        finally:
            reader.stop()

    @property
    def rows(self) -> Counter[bytes]:
        return Counter(row for rows in self._sink.values() for row in rows)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Rows 0-4 under a key that is there, 5-9 under one that is not, in groups that share segments."""
    job = Job(tmp_path)
    for bump, numbers in ((0, range(5)), (1, range(5, 10))):
        job.publisher.new_key("plant/#", bump=bump)
        for number in numbers:
            job.publish(job.publisher.seal("plant/a", b"%d" % number))
    give(job, 0)
    return job


def give(job: Job, *bumps: int) -> None:
    write_grants(job.grants, job.overlay.held({KeyName("plant/#", 0, bump) for bump in bumps}))


def lines(job: Job, **more: Any) -> list[str]:
    return list(
        redrive(job.root, more.pop("only", None), more.pop("grants", job.grants), None, drop=more.pop("drop", False))
    )


def rows(*numbers: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in numbers)


@pytest.mark.parametrize("dies", ["", "planned", "read"])
def test_rows_that_waited_for_a_key_come_once(job: Job, dies: str) -> None:
    query = Query(job)
    query.run(dies=dies)
    give(job, 0, 1)  # from here on a repeated micro-batch could open them
    if not dies:
        assert query.rows == rows(*range(5))
        query.run()
    assert "reads again" in lines(job)[0]
    assert lines(job) == []
    for again in (dies, ""):
        query.run(dies=again)
    assert query.rows == rows(*range(10))
    query.run()
    assert query.rows == rows(*range(10))


def test_nothing_is_read_again_while_the_key_is_missing_and_segments_stay(job: Job) -> None:
    query = Query(job, consumer="job")
    query.run()
    job.writer.roll(b"")
    job.publisher.new_key("plant/#", bump=0)
    job.publish(job.publisher.seal("plant/a", b"10"))
    query.run()
    assert segment_numbers(job.root / "main") == [1, 2]
    assert lines(job) == ["job: still waits for scope plant/#, epoch 0, bump 1"]
    query.run()
    assert query.rows == rows(*range(5), 10)
    give(job, 0, 1)
    lines(job)
    query.run()
    assert query.rows == rows(*range(11))
    query.run()
    assert segment_numbers(job.root / "main") == [2]


@pytest.mark.parametrize(("clock_s", "redriven_s"), [(6_000, 6_000), (-6_000, 5_000)])
def test_the_time_for_watermarks_passes_neither_redriven_rows_nor_rows_to_come(
    job: Job, monkeypatch: pytest.MonkeyPatch, clock_s: float, redriven_s: float
) -> None:
    """`progress_at`: of a redriven row not before that of rows before, nor behind that of rows that follow.

    The driver's clock is right, or far behind the receiver's.
    """
    monkeypatch.setattr("spark_ingest.source.reader.time.time", lambda: NOW + clock_s)
    query = Query(job)
    query.run()
    give(job, 0, 1)
    job.publisher.new_key("plant/#", bump=0)
    job.publish(job.publisher.seal("plant/a", b"10"), now=NOW + 5_000)
    lines(job)
    query.run()
    came = datetime.fromtimestamp(NOW, UTC)
    assert {query.progress[b"%d" % number] for number in range(5)} == {came}
    assert query.progress[b"10"].timestamp() == NOW + 5_000
    assert {query.progress[b"%d" % number].timestamp() for number in range(5, 10)} == {NOW + redriven_s}


def test_who_waits_no_longer_forgets_it(job: Job) -> None:
    query = Query(job)
    query.run()
    assert "forgot 1" in lines(job, drop=True)[0]
    give(job, 0, 1)
    assert lines(job) == []
    query.run()
    assert query.rows == rows(*range(5))
    with pytest.raises(SpoolError, match="known: telemetry"):
        lines(job, only="nobody")


def test_a_key_that_goes_after_the_plan_fails_the_task_and_passes_nothing_over(job: Job) -> None:
    query = Query(job)
    give(job, 0, 1)
    query.run(dies="planned")
    give(job, 0)
    with pytest.raises(GrantsError):
        query.run()
    give(job, 0, 1)
    query.run()
    assert query.rows == rows(*range(10))
