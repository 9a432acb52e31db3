"""The recipes of docs/how-to/spark-sinks.md, as they stand there: killed between write and commit, each row is once."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ingest.opening.rows import SCHEMAS
from spark_ingest.options import IngestStream
from tests.spark_ingest.site import Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs/how-to/spark-sinks.md"
ROWS = 200
OPTIONS = {"max_rows_per_batch": "60", "partitions": "2"}
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))


def recipe(title: str) -> dict[str, Any]:
    """What a section's program defines."""
    section = PAGE.read_text().partition(f"## {title}")[2].partition("\n## ")[0]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {"__name__": "__main__"}  # so that Spark sends functions whole to its executors
    exec(program[1], names)
    return names


class Killed(Exception):  # noqa: N818
    """Of a driver."""


Write = Callable[[Any, int], None]


def killed_after(write: Write, batch: int) -> Write:
    """The sink has committed, and Spark does not know it yet."""

    def attempt(rows: Any, number: int) -> None:
        write(rows, number)
        if number == batch:
            raise Killed

    return attempt


def until_killed(site: Site, write: Write) -> None:
    query = site.run(site.stream(**OPTIONS), write)
    with contextlib.suppress(Exception):
        query.awaitTermination()
    assert "Killed" in str(query.exception())


def to_the_end(site: Site, write: Write) -> None:
    site.run(site.stream(**OPTIONS), write).awaitTermination()


def test_parquet_with_a_manifest(site: Site, tmp_path: Path) -> None:
    site.fill(ROWS)
    names, target = recipe("Parquet with a manifest"), tmp_path / "rows"
    write, committed = names["to_parquet"](target), names["committed"]

    class Disk:
        @staticmethod
        def fsync(_: int) -> None:
            raise Killed

    def killed_before(rows: Any, number: int) -> None:
        """Rows are written, the manifest is not."""
        names["os"] = Disk if number == 1 else os
        write(rows, number)

    until_killed(site, killed_before)
    assert [Path(name).parent.name for name in committed(target)] == ["batch=0"] * len(committed(target))
    assert list((target / "batch=1").glob("*.parquet")), "written, and not committed"
    names["os"] = os
    until_killed(site, killed_after(write, 1))
    to_the_end(site, write)
    found = site.spark.read.parquet(*committed(target)).select("publisher", "sequence").collect()
    assert len(found) == len(set(found)) == ROWS


def test_delta_lake(tmp_path: Path) -> None:
    """Batches as Spark hands them over, each once more after a crash behind its commit, and an older one too."""
    deltalake = pytest.importorskip("deltalake")
    table = str(tmp_path / "delta")
    write = recipe("Delta Lake")["to_delta"](table, "plant")
    batches = [_Rows(range(60 * number, 60 * number + 60)) for number in range(3)]
    for number, rows in enumerate(batches):
        for _ in range(2):
            write(rows, number)
    write(batches[1], 1)
    other = recipe("Delta Lake")["to_delta"](table, "another query")
    other(_Rows(range(180, 200)), 0)
    delta = deltalake.DeltaTable(table)
    found = [row for name in delta.file_uris() for row in pq.read_table(name).to_pylist()]
    assert sorted(row["sequence"] for row in found) == list(range(ROWS))
    assert found[0]["properties"] == [{"name": "unit", "value": "C"}]
    assert (delta.transaction_version("plant"), delta.transaction_version("another query")) == (2, 0)


class _Rows:
    """Rows of the stream `telemetry`, as `DataFrame.toArrow` gives them."""

    def __init__(self, sequences: range) -> None:
        self._sequences = sequences

    def toArrow(self) -> pa.Table:
        at = datetime(2026, 11, 22, tzinfo=UTC)
        row = {"topic": "plant/a", "payload": b"{}", "publisher": "00", "published_at": at, "received_at": at, "qos": 1,
               "retain": False, "properties": [{"name": "unit", "value": "C"}]}  # fmt: skip
        return pa.Table.from_pylist(
            [{**row, "sequence": sequence} for sequence in self._sequences], SCHEMAS[IngestStream.TELEMETRY]
        )


@pytest.fixture
def database() -> Iterator[str]:
    """A PostgreSQL of this test alone, on a socket."""
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as home:
        as_user: list[str] = []
        if os.geteuid() == 0:  # it does not run as root
            shutil.chown(home, "postgres")
            as_user = ["runuser", "-u", "postgres", "--"]
        data, tools = f"{home}/data", POSTGRES[-1]

        def run(*command: str) -> None:
            subprocess.run([*as_user, *command], cwd=home, check=True, stdout=subprocess.DEVNULL)

        run(str(tools / "initdb"), "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", data)
        settings = f"-k {home} -c listen_addresses= -c fsync=off"
        run(str(tools / "pg_ctl"), "-w", "-D", data, "-l", f"{home}/log", "-o", settings, "start")
        try:
            user = "postgres" if as_user else pwd.getpwuid(os.geteuid()).pw_name
            yield f"host={home} dbname=postgres user={user}"
        finally:
            run(str(tools / "pg_ctl"), "-D", data, "-m", "immediate", "stop")


@pytest.mark.skipif(not POSTGRES, reason="no PostgreSQL here; make tools")
def test_postgresql_by_upsert(site: Site, database: str) -> None:
    site.fill(ROWS)
    names = recipe("PostgreSQL by upsert")
    names["psql"](database, names["TABLE"])
    write = names["to_postgres"](database)

    def killed_within(rows: Any, number: int) -> None:
        """Some rows of a batch are committed, others are not."""
        write(rows.limit(7) if number == 1 else rows, number)
        if number == 1:
            raise Killed

    until_killed(site, killed_within)
    until_killed(site, killed_after(write, 1))
    to_the_end(site, write)
    hostile = "a\n\\.\nDROP TABLE telemetry;\n\tb"
    row = site.spark.createDataFrame([("someone", 1, hostile, b"\x00\\.\n")], "publisher string, sequence bigint, "
                                     "topic string, payload binary")  # fmt: skip
    write(row.selectExpr("*", "timestamp '2026-11-22 00:00:00' AS published_at"), 9)
    asked = "SELECT count(*), count(DISTINCT (publisher, sequence)), count(*) FILTER (WHERE payload = '\\x005c2e0a') "
    command = ["psql", "-X", "-A", "-t", "-d", database, "-c", asked + "FROM telemetry"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{ROWS + 1}|{ROWS + 1}|1\n"
