"""A table of PostgreSQL: a row is there once by its key, (publisher, sequence).

Each task copies rows into a temporary table and inserts the rows that are new, in one transaction. So rows of a batch
show task by task, and a repeated batch changes nothing. By ADBC, which `veilmq[sinks]` installs on driver
and executors. Name the database by a service of libpq and keep the password in its password file: plans show arguments.
"""
# ruff: noqa: S608  names in statements are checked or quoted

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from spark_ingest.errors import BadOption
from spark_ingest.sinks.sink import DAY_COLUMN, QUERY, BatchName, Sink, check_day

KEY = ("publisher", "sequence")
TYPES = {
    "string": "text", "bigint": "bigint", "int": "integer", "smallint": "smallint", "tinyint": "smallint",
    "boolean": "boolean", "double": "double precision", "float": "real", "binary": "bytea", "timestamp": "timestamptz",
    "date": "date",
}  # fmt: skip
"""Types of columns by Spark's. Arrays, maps and structs are `jsonb`."""
JSON = "jsonb"
_NESTED = ("array", "map", "struct")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_INCOMING = "veilmq_incoming"


class PostgresSink(Sink):
    """A sink of a PostgreSQL table. The first batch makes the table; new columns are added.

    `database`: as libpq takes it, such as `service=plant`. `key`: columns that tell rows apart, of which none is null.
    `day`: the column of a time by whose day (UTC) the table is partitioned, and a part of its key; None for one table.
    """

    def __init__(
        self,
        database: str,
        table: str = "telemetry",
        query: str = QUERY,
        *,
        key: Sequence[str] = KEY,
        day: str | None = DAY_COLUMN,
    ) -> None:
        super().__init__(query)
        if not _NAME.fullmatch(table):
            raise BadOption(f"table={table!r}: letters, digits and '_', 40 at most")
        self._database, self._table = database, table
        self._key, self._day = tuple(key), day

    def has(self, name: BatchName) -> bool:
        """Returns False: a batch that comes again changes nothing, and the table keeps no numbers."""
        return False

    def commit(self, rows: Any, name: BatchName) -> None:
        """Inserts the rows that are not there yet."""
        check_day(rows.columns, self._day)
        lacking = [each for each in self._key if each not in rows.columns]
        if lacking:
            raise BadOption(f"rows have no column {', '.join(lacking)}; say key=(COLUMN, ...) that tells rows apart")
        kinds = {each.name: _kind(each.name, each.dataType.simpleString()) for each in rows.schema.fields}
        self._prepare(kinds)
        _flat(rows, kinds).mapInArrow(self._copying(kinds), "inserted long").collect()

    def _prepare(self, kinds: dict[str, str]) -> None:
        """Makes the table, or adds lacking columns."""
        columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in kinds.items())
        unique = dict.fromkeys((*self._key, *([self._day] if self._day else [])))
        primary = ", ".join(map(_quoted, unique))
        parts = f" PARTITION BY RANGE ({_quoted(self._day)})" if self._day else ""
        with _connected(self._database) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_advisory_xact_lock({_lock(self._table)})")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {_quoted(self._table)} ({columns}, PRIMARY KEY ({primary})){parts}"
            )
            for name, kind in kinds.items():
                cursor.execute(f"ALTER TABLE {_quoted(self._table)} ADD COLUMN IF NOT EXISTS {_quoted(name)} {kind}")
            connection.commit()

    def _copying(self, kinds: dict[str, str]) -> Any:
        """Returns the function of a task: Arrow batches in, the number of inserted rows out."""
        database, table, day = self._database, self._table, self._day

        def copy(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa  # noqa: PLC0415  in an executor

            first = next(batches, None)
            inserted = 0
            if first is not None:
                inserted = _insert(database, table, kinds, day, _chain(first, batches))
            yield pa.record_batch({"inserted": pa.array([inserted], pa.int64())})

        return copy


def _insert(database: str, table: str, kinds: dict[str, str], day: str | None, batches: Any) -> int:
    names = ", ".join(map(_quoted, kinds))
    values = ", ".join(f"{_quoted(name)}::{kind}" for name, kind in kinds.items())
    with _connected(database) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(_INCOMING, batches, mode="create", temporary=True)
        if day is not None:
            _make_days(cursor, table, day)
        cursor.execute(
            f"INSERT INTO {_quoted(table)} ({names}) SELECT {values} FROM pg_temp.{_INCOMING} ON CONFLICT DO NOTHING"
        )
        inserted = int(cursor.rowcount)
        cursor.execute(f"DROP TABLE pg_temp.{_INCOMING}")
        connection.commit()
    return max(inserted, 0)


def _make_days(cursor: Any, table: str, day: str) -> None:
    """Makes the partitions of the days of the incoming rows, one task at a time."""
    cursor.execute(
        f"SELECT DISTINCT to_char({_quoted(day)} AT TIME ZONE 'UTC', 'YYYYMMDD') FROM pg_temp.{_INCOMING} "
        f"WHERE to_regclass(format('%I', '{table}_' || to_char({_quoted(day)} AT TIME ZONE 'UTC', 'YYYYMMDD'))) IS NULL"
    )
    lacking = [row[0] for row in cursor.fetchall()]
    if not lacking:
        return
    cursor.execute(f"SELECT pg_advisory_xact_lock({_lock(table)})")
    for each in lacking:
        begin = f"{each[:4]}-{each[4:6]}-{each[6:]} 00:00:00+00"
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {_quoted(f'{table}_{each}')} PARTITION OF {_quoted(table)} "
            f"FOR VALUES FROM ('{begin}'::timestamptz) TO ('{begin}'::timestamptz + interval '24 hours')"
        )


def _chain(first: Any, rest: Iterator[Any]) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    def each() -> Iterator[Any]:
        yield first
        yield from rest

    return pa.RecordBatchReader.from_batches(first.schema, each())


def _connected(database: str) -> Any:
    from adbc_driver_postgresql import dbapi  # noqa: PLC0415  for who writes

    return dbapi.connect(database)


def _flat(rows: Any, kinds: dict[str, str]) -> Any:
    """Returns rows whose nested columns are JSON text."""
    from pyspark.sql import functions as f  # noqa: PLC0415  Spark takes a second to import

    nested = {name: f.to_json(name) for name, kind in kinds.items() if kind == JSON}
    return rows.withColumns(nested) if nested else rows


def _kind(name: str, told: str) -> str:
    if told.startswith(_NESTED):
        return JSON
    if told.startswith("decimal"):
        return told.replace("decimal", "numeric")
    kind = TYPES.get(told)
    if kind is None:
        raise BadOption(f"column {name} is a {told}, which PostgreSQL has no column for; cast or leave it out")
    return kind


def _quoted(name: str | None) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _lock(table: str) -> int:
    """Returns the number of the lock under which a table is changed."""
    import zlib  # noqa: PLC0415

    return zlib.crc32(table.encode())
