"""Queries that share the devices, and a change of how they do on their checkpoints: no row is lost, none is twice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_ingest.errors import BadOption
from spark_ingest.secrets.grants import Grants
from spark_ingest.source.reader import SpoolStreamReader
from spark_ingest.spool.segments import Offset
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.region import NOW, write_grants

pytest.importorskip("pyspark")


DEVICES = [f"plant/press-{number}/temperature" for number in range(24)]


SINCE = NOW + 10


CHANGE = datetime.fromtimestamp(SINCE, UTC).isoformat()


class Query:
    """What Spark does with a reader of one checkpoint, over restarts with other options."""

    def __init__(self, job: Job, name: str) -> None:
        self.job = job
        self.name = name
        self.checkpoint: Offset | None = None
        self.found: list[int] = []

    def run(self, **options: str) -> None:
        """A micro-batch of all that is there."""
        reader = self.reader(**options)
        try:
            start = reader.initialOffset() if self.checkpoint is None else self.checkpoint
            end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
            for part in reader.partitions(start, end):
                self.found += [each for batch in reader.read(part) for each in batch.column("sequence").to_pylist()]
            reader.commit(end)
            self.checkpoint = end
        finally:
            reader.stop()

    def reader(self, **options: str) -> SpoolStreamReader:
        return SpoolStreamReader(self.job.options(**({"consumer": self.name} | options)), no_client)


def no_client(_: Any) -> Any:
    raise AssertionError("a query that only reads connects to nobody")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def fill(job: Job) -> Callable[[float], None]:
    blocks = itertools.count(1)  # parts go by blocks of numbers
    return lambda time: job.publish(
        *(job.publisher.seal(topic, time=time, sequence=next(blocks) << 12) for topic in DEVICES)
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"shard": "1/2"}, {"shard": "1/3"}),
        ({"shard": "1/2"}, {}),
        ({}, {"shard": "1/2"}),
        ({"shard": "1/2"}, {"shard": "1/3", "shard_before": f"2/2@{CHANGE}"}),
    ],
)
def test_another_shard_on_one_checkpoint_is_refused(
    job: Job, fill: Callable[[float], None], before: dict[str, str], after: dict[str, str]
) -> None:
    fill(NOW)
    query = Query(job, "one")
    query.run(**before)
    fill(NOW + 1)
    with pytest.raises(BadOption, match="shard_before=") as caught:
        query.run(**after)
    assert "\n" not in str(caught.value)
    query.run(**before)
    assert len(query.found) == len(set(query.found))


def test_a_batch_that_was_planned_under_another_shard_is_refused(job: Job, fill: Callable[[float], None]) -> None:
    """Spark plans, dies, and repeats the batch, the first one from an offset that it asks for anew."""
    fill(NOW)
    planned = Query(job, "one").reader(shard="1/2")
    end = planned.latestOffset(planned.initialOffset(), ReadAllAvailable())
    planned.stop()
    again = Query(job, "one").reader(shard="1/3")
    with pytest.raises(BadOption, match="shard_before="):
        again.partitions(again.initialOffset(), end)
    again.stop()


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 3)])
@pytest.mark.parametrize("stream", ["telemetry", "quarantine"])
def test_a_change_at_a_time_of_sealing_loses_and_repeats_nothing(
    job: Job, fill: Callable[[float], None], before: int, after: int, stream: str
) -> None:
    """Each query restarts when it likes, what was sealed before the change comes after it, too."""
    if stream == "quarantine":  # of the same options, but no key: every row is there
        write_grants(job.grants, Grants({}))
    for time in (SINCE - 2, SINCE - 1):
        fill(time)
    queries = [Query(job, f"q{number}") for number in range(1, max(before, after) + 1)]
    old: list[dict[str, str]] = [{"shard": f"{n}/{before}", "stream": stream} for n in range(1, before + 1)]
    new = []
    for number in range(1, len(queries) + 1):
        now = f"{number}/{after}" if number <= after else "none"
        then = f"{number}/{before}" if number <= before else "none"
        new.append({"shard": now, "shard_before": f"{then}@{CHANGE}", "stream": stream})
    for query, options in zip(queries, old, strict=False):
        query.run(**options)
    fill(SINCE - 0.001)
    queries[0].run(**new[0])
    fill(SINCE)
    for query, options in zip(queries[1:], new[1:], strict=True):
        query.run(**options)
    fill(SINCE + 1)
    fill(SINCE - 3)
    for query, options in zip(queries, new, strict=True):
        query.run(**options)
    found = sorted(itertools.chain(*(query.found for query in queries)))
    assert found == [block << 12 for block in range(1, 6 * len(DEVICES) + 1)]
    assert all(query.found for query in queries)


def test_a_query_keeps_its_name_when_shards_change(job: Job) -> None:
    """Else its former one would hold the spool for ever."""
    assert job.options(shard="1/2").consumer == "telemetry-1of2"
    assert job.options(shard="1/3", shard_before=f"1/2@{CHANGE}").consumer == "telemetry-1of2"
    assert job.options(shard="3/3", shard_before=f"none@{CHANGE}").consumer == "telemetry-3of3"


def test_a_query_of_all_devices_may_take_others_in(job: Job, fill: Callable[[float], None]) -> None:
    fill(NOW)
    first, second = Query(job, "first"), Query(job, "second")
    first.run()
    first.run(shard="1/2", shard_before=f"1/1@{CHANGE}")
    fill(SINCE)
    first.run(shard="1/2", shard_before=f"1/1@{CHANGE}")
    second.run(shard="2/2", shard_before=f"none@{CHANGE}")
    assert sorted(first.found + second.found) == [block << 12 for block in range(1, 2 * len(DEVICES) + 1)]
