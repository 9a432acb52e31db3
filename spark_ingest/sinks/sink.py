"""The base of the sinks: a batch has a name, and rows and name are committed together.

Spark repeats a micro-batch after a crash, under the same number and with the same rows. So a sink that knows the names
of committed batches takes each row once. Rows come as a DataFrame; `arrow_rows` brings rows to the driver.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from spark_ingest.errors import BadOption

DAY_COLUMN = "published_at"
"""The time by whose day (UTC) tables are partitioned, unless told otherwise."""
QUERY = "veilmq"
TIME_UNIT = "us"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class BatchName(NamedTuple):
    """The name of a batch. `writer`: a query, or a batch write of its own; `number`: rises by one with each batch."""

    writer: str
    number: int


class Sink(ABC):
    """A sink that takes each batch once: `foreachBatch(sink)` in a stream, `sink.write(rows, NAME)` in a batch.

    `query`: belongs to one checkpoint; a new checkpoint takes a new name, since batches count from 0 again.
    """

    def __init__(self, query: str = QUERY) -> None:
        self._query = _checked(query)

    def __call__(self, rows: Any, batch: int) -> None:
        """Takes a micro-batch, for `foreachBatch`. Does nothing if the sink has it."""
        self._take_batch(rows, BatchName(self._query, batch))

    def write(self, rows: Any, name: str) -> None:
        """Takes the rows of a batch read, once for each name. Raises BadOption for a name that is none."""
        self._take_batch(rows, BatchName(f"{self._query}.{_checked(name)}", 0))

    def _take_batch(self, rows: Any, name: BatchName) -> None:
        if not self.has(name):
            self.commit(rows, name)

    @abstractmethod
    def has(self, name: BatchName) -> bool:
        """Returns True if this batch, or a later one of its writer, is committed."""

    @abstractmethod
    def commit(self, rows: Any, name: BatchName) -> None:
        """Writes the rows and commits them together with the name.

        Of two drivers at one batch, one taken for dead and its successor, one commits; the other does nothing or
        raises.
        """


def arrow_rows(rows: Any) -> Any:
    """Returns the rows of a DataFrame as an Arrow table in the driver; times in microseconds of UTC."""
    import pyarrow as pa  # noqa: PLC0415  for who writes

    table = rows.toArrow()
    utc = pa.timestamp(TIME_UNIT, tz="UTC")
    fields = [pa.field(each.name, utc if pa.types.is_timestamp(each.type) else each.type) for each in table.schema]
    return table.cast(pa.schema(fields))


def check_day(columns: Any, day: str | None) -> None:
    """Raises BadOption if rows lack the column by which a table is partitioned."""
    if day is not None and day not in columns:
        raise BadOption(f"rows have no column {day}; say day=COLUMN of a time, or day=None for no partitions")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadOption(f"{name!r} is no name of a query or batch: letters, digits, '.', '_', '-', 100 at most")
    return name
