"""An exact sink for telemetry: the publications that arrived, once each, in an SQLite file.

For comparisons of published with received rows (the demonstration, acceptance tests), not for volume: each micro-batch
is collected in the driver. Spark may repeat a micro-batch after a crash; a repetition replaces its first attempt, in a
single transaction with the number of the batch. Payloads are kept as SHA-256 only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

_TABLES = """
CREATE TABLE IF NOT EXISTS publications (
    batch INTEGER NOT NULL, publisher TEXT NOT NULL, sequence INTEGER NOT NULL,
    topic TEXT NOT NULL, digest TEXT NOT NULL, id TEXT);
CREATE INDEX IF NOT EXISTS by_batch ON publications (batch);
CREATE INDEX IF NOT EXISTS by_publication ON publications (publisher, sequence);
"""


class Arrived(NamedTuple):
    """A publication: publisher in hex, its sequence, clear topic, SHA-256 of the payload in hex, the sender's id."""

    publisher: str
    sequence: int
    topic: str
    digest: str
    id: str | None = None


class PublicationSink:
    """A sink for `rows.writeStream.foreachBatch(PublicationSink(path).write)`; keep the file as long as the
    checkpoint.
    """

    def __init__(self, path: Path, id_field: str | None = None) -> None:
        """Opens the file. `id_field`: the field of JSON payloads with the sender's number. Raises sqlite3.Error."""
        self._path = path
        self._id_field = id_field
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            # Spark commits the batch after `write` returns: what it then never repeats must be on disk.
            database.execute("PRAGMA synchronous=FULL")
            database.executescript(_TABLES)

    def write(self, rows: Any, batch: int) -> None:
        """Writes a micro-batch in the driver, in a single transaction, for `foreachBatch`."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        text = f.col("payload").cast("string")
        told = f.lit(None) if self._id_field is None else f.get_json_object(text, f"$.{self._id_field}")
        digest = f.sha2("payload", 256)
        chosen = rows.select("publisher", "sequence", "topic", digest.alias("digest"), told.cast("string").alias("id"))
        found = [(batch, *row) for row in chosen.collect()]
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("PRAGMA synchronous=FULL")
            database.execute("DELETE FROM publications WHERE batch = ?", (batch,))
            database.executemany("INSERT INTO publications VALUES (?, ?, ?, ?, ?, ?)", found)

    def arrived_rows(self) -> Iterator[Arrived]:
        """Yields every row, in order of batch; a publication that came twice is there twice."""
        return self._select("ORDER BY batch, rowid")

    def arrived_in(self, batch: int) -> Iterator[Arrived]:
        """Yields the rows of a micro-batch."""
        return self._select("WHERE batch = ?", batch)

    def _select(self, which: str, *told: int) -> Iterator[Arrived]:
        query = f"SELECT publisher, sequence, topic, digest, id FROM publications {which}"  # noqa: S608  our own words
        with closing(sqlite3.connect(self._path)) as database:
            yield from map(Arrived._make, database.execute(query, told))
