"""The recipes of docs/how-to/spark-sinks.md, as they stand there: killed between write and commit, each row is once."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.gateway.overlay_processes import ENVIRONMENT
from tests.spark_ingest.sinks import POSTGRES, QUERY, SINKS, Delta, Parquet, Postgres, database
from tests.spark_ingest.site import Site

pytestmark = pytest.mark.timeout(400)

ROWS = 200
DEATHS = ((1, "before"), (1, "half"), (1, "after"), (2, "half"), (2, "after"))
"""Batch and moment, one after the other from one checkpoint."""


class Batch:
    """What a recipe gets of Spark, without Spark. `topic`: of all rows. `dies`: the task does, when half are read."""

    def __init__(self, *sequences: int, topic: str = "plant/a", dies: bool = False) -> None:
        self._rows = pa.table({"publisher": ["someone"] * len(sequences), "sequence": sequences})
        self._topic, self._dies = topic, dies

    def toArrow(self) -> pa.Table:
        return self._rows

    write = property(lambda self: self)

    def mode(self, mode: str) -> Batch:
        assert mode == "overwrite"
        return self

    def parquet(self, directory: str) -> None:
        """As Spark overwrites: what was there goes, a file a task comes."""
        shutil.rmtree(directory, ignore_errors=True)
        Path(directory).mkdir(parents=True)
        for number in range(self._rows.num_rows):
            pq.write_table(self._rows.slice(number, 1), f"{directory}/part-{number}.parquet")

    def selectExpr(self, *told: str) -> Batch:
        assert [each.split("(")[0] for each in told[:3]] == ["publisher", "sequence", "topic"]
        return self

    def foreachPartition(self, copy: Callable[[Iterator[tuple[str, ...]]], None]) -> None:
        copy(self._texts())

    def _texts(self) -> Iterator[tuple[str, ...]]:
        for row in self._rows.to_pylist():
            yield row["publisher"], str(row["sequence"]), self._topic, "2026-11-22T00:00:00.000000Z", "\\x00"
        if self._dies:
            raise InterruptedError


def test_delta_lake(tmp_path: Path) -> None:
    """A batch that comes again is not written again, the last one or an older one, nor by a driver that is new."""
    deltalake = pytest.importorskip("deltalake")
    target = str(tmp_path / "delta")
    sink = Delta(target)
    for number, batch in ((0, Batch(1, 2)), (1, Batch(3)), (1, Batch(3)), (0, Batch(1, 2))):
        sink.write(batch, number)
    again = Delta(target)
    for number, batch in ((1, Batch(3)), (2, Batch(4))):
        again.write(batch, number)
    assert sorted(again.found()) == [("someone", sequence) for sequence in (1, 2, 3, 4)]
    assert deltalake.DeltaTable(target).transaction_version(QUERY) == 2


@pytest.mark.parametrize("batches_before", [0, 1])
def test_delta_lake_takes_a_batch_of_one_driver_alone(tmp_path: Path, batches_before: int) -> None:
    """Two drivers are at the same batch: one that was taken for dead, and its successor. The table is new, or not."""
    deltalake = pytest.importorskip("deltalake")
    target = str(tmp_path / "delta")
    first, successor = Delta(target), Delta(target)
    for number in range(batches_before):
        first.write(Batch(1, 2), number)
    commit = first.names["write_deltalake"]

    def overtaken(*told: Any, **more: Any) -> None:
        """Commits when the successor has committed, after the first driver asked."""
        successor.write(Batch(3, 4), batches_before)
        commit(*told, **more)

    first.names["write_deltalake"] = overtaken
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        first.write(Batch(3, 4), batches_before)
    wanted = [*([1, 2] * batches_before), 3, 4]
    assert sorted(first.found()) == [("someone", sequence) for sequence in wanted]
    Delta(target).write(Batch(3, 4), batches_before)
    assert sorted(first.found()) == [("someone", sequence) for sequence in wanted]


def test_parquet_with_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that comes again is not written again, nor does one count that died before its manifest."""
    target = tmp_path / "rows"
    sink = Parquet(str(target))
    for number, batch in ((0, Batch(1, 2)), (1, Batch(3)), (1, Batch(99))):
        sink.write(batch, number)
    with monkeypatch.context() as dying:
        dying.setattr("os.fsync", _dies)
        with pytest.raises(InterruptedError):
            sink.write(Batch(4, 5, 6), 2)
    assert list(target.glob("batch=2/*.parquet"))
    assert sorted(sink.found()) == [("someone", sequence) for sequence in (1, 2, 3)]
    again = Parquet(str(target))
    again.write(Batch(4, 5), 2)
    assert sorted(again.found()) == [("someone", sequence) for sequence in (1, 2, 3, 4, 5)]


def _dies(_: int) -> None:
    raise InterruptedError


@pytest.mark.skipif(not POSTGRES, reason="no PostgreSQL here; make tools")
def test_postgresql_by_upsert() -> None:
    """A row that comes again changes nothing; of a task that dies nothing is there; topics are values."""
    hostile = "a\n\\.\nDROP TABLE telemetry;\n\tb"
    with database() as place:
        sink = Postgres(place)
        for batch in (Batch(1, 2), Batch(1, 2, 3), Batch(3), Batch(4, topic=hostile)):
            sink.write(batch, 7)
        with pytest.raises(InterruptedError):
            sink.write(Batch(5, 6, dies=True), 8)
        assert sorted(Postgres(place).found()) == [("someone", sequence) for sequence in (1, 2, 3, 4)]
        command = ["psql", "-X", "-A", "-t", "-d", place, "-c", "SELECT topic FROM telemetry WHERE sequence = 4"]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == hostile + "\n"


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A sink by name, and where it writes to."""
    name = request.param
    if name == "delta":
        pytest.importorskip("deltalake")
    if name != "postgres":
        yield name, str(tmp_path / "rows")
        return
    if not POSTGRES:
        pytest.skip("no PostgreSQL here; make tools")
    with database() as place:
        yield name, place


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)  # Spark starts once more than it is killed, which a busy machine does slowly
@pytest.mark.parametrize("target", SINKS, indirect=True)
def test_a_driver_that_is_killed_again_and_again_leaves_each_row_once(target: tuple[str, str], tmp_path: Path) -> None:
    """SIGKILL of driver and JVM before a batch is written, within, and between the sink's commit and Spark's."""
    site = Site(None, tmp_path)
    site.fill(ROWS)
    command = [sys.executable, "-m", "tests.spark_ingest.sink_driver", str(tmp_path), *target]
    driver: dict[str, Any] = {"cwd": tmp_path, "env": ENVIRONMENT, "capture_output": True, "text": True}
    for batch, moment in DEATHS:
        done = subprocess.run([*command, str(batch), moment], check=False, **driver)
        assert done.returncode == -signal.SIGKILL, (batch, moment, done.stderr[-2000:])
    site.fill(ROWS)
    done = subprocess.run(command, check=False, **driver)
    assert done.returncode == 0, done.stderr[-2000:]
    sink = SINKS[target[0]](target[1])
    found = sink.found()
    print(
        f"{target[0]}: {2 * ROWS} published, {len(DEATHS)} times killed, {len(found)} rows, {len(set(found))} different"
    )
    assert len(found) == len(set(found)) == 2 * ROWS
    assert {sequence for _, sequence in found} == {sequence for sequence, _, _ in site.published}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not POSTGRES, reason="no PostgreSQL here; make tools")
def test_hostile_topics_and_payloads_are_values(site: Site) -> None:
    with database() as place:
        sink = Postgres(place)
        hostile = "a\n\\.\nDROP TABLE telemetry;\n\tb"
        row = site.spark.createDataFrame([("someone", 1, hostile, b"\x00\\.\n")], "publisher string, sequence bigint, "
                                         "topic string, payload binary")  # fmt: skip
        sink.write(row.selectExpr("*", "timestamp '2026-11-22 00:00:00' AS published_at"), 9)
        asked = (
            "SELECT count(*) FROM telemetry WHERE payload = '\\x005c2e0a' AND topic = E'"
            + hostile.replace("\\", "\\\\")
            + "'"
        )
        command = ["psql", "-X", "-A", "-t", "-d", place, "-c", asked]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "1\n"
