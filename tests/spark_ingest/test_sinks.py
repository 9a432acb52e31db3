"""The recipes of docs/how-to/spark-sinks.md, as they stand there: killed between write and commit, each row is once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.gateway.overlay_processes import ENVIRONMENT
from tests.spark_ingest.sinks import POSTGRES, QUERY, SINKS, Delta, Postgres, database
from tests.spark_ingest.site import Site

pytestmark = pytest.mark.timeout(400)

ROWS = 200
DEATHS = ((1, "before"), (1, "half"), (1, "after"), (2, "half"), (2, "after"))
"""Batch and moment, one after the other from one checkpoint."""


class Batch:
    """What a recipe gets of Spark, without Spark."""

    def __init__(self, *sequences: int) -> None:
        self._rows = pa.table({"publisher": ["someone"] * len(sequences), "sequence": sequences})

    def toArrow(self) -> pa.Table:
        return self._rows


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
