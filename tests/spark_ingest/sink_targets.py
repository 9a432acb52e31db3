"""Sinks as tests drive them: where they write to, moments at which a driver may die, and the rows that are there, read
by an engine that is not Spark."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spark_ingest.sinks.delta import DeltaSink
from spark_ingest.sinks.iceberg import IcebergSink
from spark_ingest.sinks.parquet import ParquetSink, committed_files
from spark_ingest.sinks.postgres import PostgresSink
from spark_ingest.sinks.sink import Sink
from tests.waits import wait_until

OPTIONS = {"max_rows_per_batch": "20", "partitions": "2"}
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
QUERY = "plant"

Die = Callable[[], None]
"""Does not return."""
Found = list[tuple[str, int]]
"""Publisher and sequence of each row."""


class Target(ABC):
    """A sink and its table."""

    sink: Sink

    @abstractmethod
    def write_half(self, rows: Any, batch: int, die: Die) -> None:
        """Dies when something of the batch is written, and not all."""

    @abstractmethod
    def found(self) -> Found:
        """Returns the rows of the table."""


class Parquet(Target):
    """A directory with manifests, read by DuckDB."""

    def __init__(self, place: str, **options: Any) -> None:
        self._place = place
        self.sink = ParquetSink(place, QUERY, **{"merge_after": 4, **options})

    def write_half(self, rows: Any, batch: int, die: Die) -> None:
        """Rows are written, the manifest is not."""
        from spark_ingest.sinks import parquet

        parquet._sync = lambda _: die()
        self.sink(rows, batch)

    def table(self, columns: str) -> list[tuple[Any, ...]]:
        """Returns columns, with the day in the path as column `day`."""
        import duckdb

        files = committed_files(self._place)
        told = f"SELECT {columns} FROM read_parquet({files!r}, hive_partitioning = true, union_by_name = true)"
        return duckdb.sql(told).fetchall() if files else []

    def found(self) -> Found:
        return [(str(publisher), int(sequence)) for publisher, sequence in self.table("publisher, sequence")]


class DriverWritten(Target):
    """A table whose files the driver writes, in a directory."""

    directory: str

    def write_half(self, rows: Any, batch: int, die: Die) -> None:
        """Dies as soon as a file of the batch's rows shows: before its commit, or while that is made."""
        before = set(Path(self.directory).rglob("*.parquet"))

        def watch() -> None:
            if wait_until(lambda: set(Path(self.directory).rglob("*.parquet")) - before, every_s=0.0002):
                die()

        threading.Thread(target=watch, daemon=True).start()
        self.sink(rows, batch)


class Delta(DriverWritten):
    """A table of Delta Lake, read by Polars."""

    def __init__(self, place: str, **options: Any) -> None:
        self.directory = place
        self.sink = DeltaSink(place, QUERY, **{"merge_after": 4, **options})

    def frame(self) -> Any:
        """Returns the table as a frame of Polars."""
        import polars

        return polars.read_delta(self.directory)

    def found(self) -> Found:
        return [(str(publisher), int(sequence)) for publisher, sequence in self.frame()["publisher", "sequence"].rows()]


class Iceberg(DriverWritten):
    """A table of Iceberg, in a catalog of SQLite, read by Polars."""

    def __init__(self, place: str, **options: Any) -> None:
        Path(place).mkdir(exist_ok=True)
        self.directory = place
        self.properties = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/rows"}
        self.sink = IcebergSink("plant.rows", QUERY, properties=self.properties, **{"merge_after": 4, **options})

    def table(self) -> Any:
        """Returns the table as pyiceberg has it."""
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.properties).load_table("plant.rows")

    def frame(self) -> Any:
        """Returns the table as a frame of Polars."""
        import polars

        os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # else it warns of a planner that is not installed
        return polars.scan_iceberg(self.table()).collect()

    def found(self) -> Found:
        return [(str(publisher), int(sequence)) for publisher, sequence in self.frame()["publisher", "sequence"].rows()]


class Postgres(Target):
    """A table of PostgreSQL. `place`: how libpq finds the database."""

    def __init__(self, place: str, **options: Any) -> None:
        self._place = place
        self.sink = PostgresSink(place, query=QUERY, **options)

    def write_half(self, rows: Any, batch: int, die: Die) -> None:
        """Some rows of it are committed, others are not."""
        self.sink(rows.limit(7), batch)
        die()

    def ask(self, query: str) -> list[list[str]]:
        """Returns the fields of each row that psql gives."""
        command = ["psql", "-X", "-A", "-t", "-F", "\x1f", "-R", "\x1e", "-d", self._place, "-c", query]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.removesuffix("\n")
        return [line.split("\x1f") for line in told.split("\x1e") if line]

    def found(self) -> Found:
        rows = self.ask("SELECT publisher, sequence FROM telemetry")
        return [(publisher, int(sequence)) for publisher, sequence in rows]


TARGETS: dict[str, Callable[..., Target]] = {
    "parquet": Parquet, "delta": Delta, "iceberg": Iceberg, "postgres": Postgres,
}  # fmt: skip


@contextlib.contextmanager
def database() -> Iterator[str]:
    """A PostgreSQL of its own, on a socket; how psql finds it."""
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
