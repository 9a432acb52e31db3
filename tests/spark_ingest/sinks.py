"""The recipes of docs/how-to/spark-sinks.md as they stand there, and what tests of them share: where they write to,
what is there, and moments at which a driver may die."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.waits import wait_until

PAGE = Path(__file__).parents[2] / "docs/how-to/spark-sinks.md"
OPTIONS = {"max_rows_per_batch": "60", "partitions": "2"}
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
QUERY = "plant"
"""How the recipe for Delta Lake names it."""

Write = Callable[[Any, int], None]
Die = Callable[[], None]
"""Does not return."""


def recipe(title: str) -> dict[str, Any]:
    """What a section's program defines."""
    section = PAGE.read_text().partition(f"## {title}")[2].partition("\n## ")[0]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {"__name__": "__main__"}  # so that Spark sends functions whole to its executors
    exec(program[1], names)
    return names


class Parquet:
    """A directory with a manifest for each batch."""

    def __init__(self, target: str) -> None:
        self.names = recipe("Parquet with a manifest")
        self._target = target
        self.write: Write = self.names["to_parquet"](target)

    def write_half(self, rows: Any, batch: int, die: Die) -> None:
        """Rows are written, the manifest is not."""

        class Disk:
            @staticmethod
            def fsync(_: int) -> None:
                die()

        self.names["os"] = Disk
        self.write(rows, batch)

    def found(self) -> list[tuple[str, int]]:
        """Publisher and sequence of each row."""
        return _rows_of(self.names["committed"](self._target))


class Delta:
    """A table of Delta Lake."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.names = recipe("Delta Lake")
        self.write: Write = self.names["to_delta"](target, QUERY)

    def write_half(self, rows: Any, batch: int, die: Die) -> None:
        """It dies as soon as a file of the batch's rows shows: before its commit, or while that is made."""
        before = set(Path(self._target).glob("*.parquet"))

        def watch() -> None:
            if wait_until(lambda: set(Path(self._target).glob("*.parquet")) - before, every_s=0.0002):
                die()

        threading.Thread(target=watch, daemon=True).start()
        self.write(rows, batch)

    def found(self) -> list[tuple[str, int]]:
        """Publisher and sequence of each row."""
        import deltalake

        return _rows_of(deltalake.DeltaTable(self._target).file_uris())


class Postgres:
    """A table of PostgreSQL. `target`: how psql finds the database."""

    def __init__(self, target: str) -> None:
        names = recipe("PostgreSQL by upsert")
        self._target = target
        names["psql"](target, names["TABLE"])
        self.write: Write = names["to_postgres"](target)

    def write_half(self, rows: Any, batch: int, die: Die) -> None:
        """Some rows of it are committed, others are not."""
        self.write(rows.limit(7), batch)
        die()

    def found(self) -> list[tuple[str, int]]:
        """Publisher and sequence of each row."""
        asked = "SELECT publisher, sequence FROM telemetry"
        command = ["psql", "-X", "-A", "-t", "-F", " ", "-d", self._target, "-c", asked]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [(publisher, int(sequence)) for publisher, sequence in map(str.split, told.splitlines())]


def _rows_of(files: list[str]) -> list[tuple[str, int]]:
    tables = [pq.read_table(name, columns=["publisher", "sequence"], partitioning=None) for name in files]
    return [(row["publisher"], row["sequence"]) for table in tables for row in table.to_pylist()]


SINKS: dict[str, Callable[[str], Parquet | Delta | Postgres]] = {
    "parquet": Parquet, "delta": Delta, "postgres": Postgres,
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
