"""Keys that are wrong or late end a query, or make it wait: they do not make it pass rows over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from keys.envelope import KeyName, make_key
from spark_ingest.errors import GrantsError
from spark_ingest.opening import rows as rows_module
from spark_ingest.opening.rows import RowReader
from spark_ingest.secrets import grants as grants_module
from spark_ingest.secrets.grants import Grants
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.region import NOW, Publisher, check_values, write_grants


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path)
    job.publish(*(job.publisher.seal("plant/a", b"%d" % n) for n in range(5)))
    return job


def read(job: Job, **options: str) -> int:
    view = SpoolView(job.root)
    reader = RowReader(job.options(**options))
    return sum(batch.num_rows for extent in view.ranges({}, view.latest(), 1) for batch in reader.read(extent))


def sleep_by(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """For the reader alone: other threads of the process, which sleep too, must not write files here."""
    monkeypatch.setattr(rows_module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))


@pytest.mark.parametrize("stream", ["telemetry", "availability", "quarantine"])
def test_another_spools_keys_fail_the_query_of_each_stream(job: Job, stream: str) -> None:
    scope = job.overlay.held().scopes["plant/#"]
    for grants in (Grants({}), Grants({"plant/#": replace(scope, keys=dict.fromkeys(scope.keys, bytes(31) + b"x"))})):
        write_grants(job.grants, grants)
        with pytest.raises(GrantsError, match="onMissingKey") as error:
            read(job, stream=stream, onMissingKey="fail")
        assert "\n" not in str(error.value)
        assert read(job, stream=stream, onMissingKey="quarantine") == (5 if stream == "quarantine" else 0)


def test_a_key_that_comes_while_a_task_waits_opens_its_rows(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    write_grants(job.grants, Grants({}))
    looks = []

    def look(_: float) -> None:
        looks.append(1)
        write_grants(job.grants)

    sleep_by(monkeypatch, look)
    assert read(job, onMissingKey="wait") == 5
    assert looks == [1]
    write_grants(job.grants, Grants({}))
    sleep_by(monkeypatch, lambda _: None)
    with pytest.raises(GrantsError, match="onMissingKey"):
        read(job, onMissingKey="wait", key_patience_s="0.1")


def test_a_file_is_read_again_before_a_task_fails_whatever_its_time_says(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared file systems tell what `stat` knew a while ago."""
    monkeypatch.setattr(grants_module, "stamp", lambda _: (1, 1, 1))
    write_grants(job.grants, Grants({}))
    reader = RowReader(job.options(onMissingKey="fail"))
    view = SpoolView(job.root)
    (extent,) = view.ranges({}, view.latest(), 1)
    with pytest.raises(GrantsError):
        list(reader.read(extent))
    write_grants(job.grants)
    assert sum(batch.num_rows for batch in reader.read(extent)) == 5


def test_a_row_that_the_receiver_gave_up_on_is_no_reason_to_fail(tmp_path: Path) -> None:
    """Its key never came to the job: it has no right to it, or the key service was away."""
    job = Job(tmp_path)
    job.publisher.new_key("plant/#", bump=1)
    job.link.collector.learn(check_values(job.overlay.names(bumps=(0,))))
    job.link.publish(job.publisher.seal("plant/a"))
    job.link.collector.do_due_work(NOW + 10)
    job.link.write(job.writer)
    assert read(job, onMissingKey="fail") == 0
    assert read(job, stream="quarantine", onMissingKey="fail") == 1


@pytest.mark.attack(41)
def test_an_epoch_key_of_a_publishers_own_invention_ends_no_query(job: Job) -> None:
    """Attack: a data key for another epoch key than everybody's looks like a wrong file of scope keys; one such row
    would end, for good, each query that reads others' rows."""
    evil = Publisher(job.overlay, "evil")
    name, invented = KeyName("plant/#", 0, 0), bytes(31) + b"x"
    evil.keys["plant/#"] = make_key(evil.identity, name, job.overlay.hops, 1, 64, invented, evil.random)
    job.publish(evil.seal("plant/a", b"lie"))
    job.link.collector.do_due_work(NOW + 10)
    job.link.write(job.writer)
    job.publish(job.publisher.seal("plant/a", b"5"))
    assert read(job, onMissingKey="fail") == 6
    assert read(job, stream="quarantine", onMissingKey="fail") == 1
    assert job.link.collector.granted.take_wanted() == [name]
