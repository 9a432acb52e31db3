"""A table of Apache Iceberg: rows and the number of their batch are one transaction of the catalog.

By [pyiceberg](https://py.iceberg.apache.org/) in the driver, without a jar: the driver has a batch in its memory, which
`max_bytes_per_batch` bounds. The number stands in a property of the table, `veilmq.batch.WRITER`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_ingest.sinks.sink import DAY_COLUMN, QUERY, BatchName, Sink, arrow_rows, check_day

PROPERTY = "veilmq.batch."
MERGE_AFTER = 100
"""Batches after which days with many files are written again."""
FILES_MAX = 8
"""Files of a day that are too few to merge."""
DAY_BYTES_MAX = 512 << 20
"""Most bytes of a day that is merged, all in memory. Larger days are for the catalog's maintenance."""
TRIES = 10
"""Commits that others overtake, of one batch."""
_log = logging.getLogger(__name__)


class IcebergSink(Sink):
    """A sink of an Iceberg table. The first batch makes the table; new columns are added.

    `table`: NAMESPACE.NAME. `catalog`: a name of pyiceberg's configuration, with `properties` beside or instead of it.
    `day`: the column of a time by whose day the table is partitioned (its hidden partition `days(COLUMN)`), None for no
    partitions. `merge_after`: after so many batches the files of a day become one; 0: never.
    """

    def __init__(
        self,
        table: str,
        query: str = QUERY,
        *,
        catalog: str = "default",
        properties: Mapping[str, str] | None = None,
        day: str | None = DAY_COLUMN,
        merge_after: int = MERGE_AFTER,
    ) -> None:
        super().__init__(query)
        self._name, self._catalog_name = table, catalog
        self._properties = dict(properties or {})
        self._day, self._merge_after = day, merge_after
        self._opened: Any = None
        self._seen: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the settings: a catalog's connection does not travel."""
        return self.__dict__ | {"_opened": None, "_seen": None}

    @property
    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415  for who writes

        if self._opened is None:
            self._opened = load_catalog(self._catalog_name, **self._properties)
        return self._opened

    def has(self, name: BatchName) -> bool:
        """Returns True if the table's property names this batch or a later one; `commit` goes to the table as seen."""
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

        try:
            self._seen = self._catalog.load_table(self._name)
        except NoSuchTableError:
            self._seen = None
            return False
        # Another writer's commit may be this very batch, by a driver that was taken for dead. So a refused commit is
        # looked at again here (`commit`), and not repeated by pyiceberg, which would append the rows once more.
        self._seen.metadata.properties["commit.retry.num-retries"] = "0"
        return int(self._seen.properties.get(PROPERTY + name.writer, -1)) >= name.number

    def commit(self, rows: Any, name: BatchName) -> None:
        """Appends the rows. Raises CommitFailedException if others commit all the time."""
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

        data = arrow_rows(rows)
        check_day(data.column_names, self._day)
        if self._seen is None:
            self._create(data.schema)
            if self.has(name):
                return
        for tried in range(TRIES):
            try:
                self._append(data, name)
                break
            except CommitFailedException:
                if tried == TRIES - 1:
                    raise
                if self.has(name):
                    return
        if self._merge_after and name.number % self._merge_after == self._merge_after - 1:
            self._merge()

    def _create(self, schema: Any) -> None:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError  # noqa: PLC0415

        namespace = self._name.rpartition(".")[0]
        with contextlib.suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(namespace)
        try:
            table = self._catalog.create_table(self._name, schema=schema)
        except TableAlreadyExistsError:
            return
        if self._day is not None:
            from pyiceberg.transforms import DayTransform  # noqa: PLC0415

            with table.update_spec() as spec:
                spec.add_field(self._day, DayTransform(), f"{self._day}_day")

    def _append(self, data: Any, name: BatchName) -> None:
        """Adds columns that the table lacks, the rows and the number, in one commit."""
        known = set(self._seen.schema().column_names)
        with self._seen.transaction() as together:
            if not known.issuperset(data.column_names):
                with together.update_schema() as schema:
                    schema.union_by_name(data.schema)
            together.append(data)
            together.set_properties({PROPERTY + name.writer: str(name.number)})

    def _merge(self) -> None:
        """Writes each day that has many files anew; days that others write to meanwhile are left."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException  # noqa: PLC0415

        table = self._catalog.load_table(self._name)
        table.metadata.properties["commit.retry.num-retries"] = "0"
        days: dict[Any, list[int]] = {}
        for task in table.scan().plan_files():
            key = task.file.partition[0] if self._day is not None else None
            days.setdefault(key, []).append(task.file.file_size_in_bytes)
        for day, sizes in days.items():
            if len(sizes) <= FILES_MAX or sum(sizes) > DAY_BYTES_MAX:
                continue
            rows = "true"
            if day is not None:
                rows = f"{self._day} >= '{_moment(day)}' and {self._day} < '{_moment(day + 1)}'"
            try:
                table.overwrite(table.scan(row_filter=rows).to_arrow(), overwrite_filter=rows)
            except (CommitFailedException, ValidationException):
                _log.info("veilmq: %s: day %s was written to while its files were merged; left", self._name, day)
            table = table.refresh()


def _moment(day: int) -> str:
    """Returns the beginning of a day, counted from 1970, as Iceberg's filters have it."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).isoformat()
