"""A table of Delta Lake: a commit names its query and the number of its batch, which the table keeps.

By [delta-rs](https://delta-io.github.io/delta-rs/) in the driver, without a jar: the driver has a batch in its memory,
which `max_bytes_per_batch` bounds.
"""

from __future__ import annotations

from typing import Any

from spark_ingest.sinks.sink import DAY_COLUMN, QUERY, BatchName, Sink, arrow_rows, check_day

DAY = "day"
"""The column that partitions the table."""
MERGE_AFTER = 100
"""Batches whose small files are merged."""


class DeltaSink(Sink):
    """A sink of a Delta table, by path or URL. The first batch makes the table; new columns are added.

    `day`: the column of a time whose day (UTC) partitions the table, None for no partitions. `merge_after`: after so
    many batches small files become large ones; 0: never. `storage`: options of delta-rs for the table's storage.
    """

    def __init__(
        self,
        table: str,
        query: str = QUERY,
        *,
        day: str | None = DAY_COLUMN,
        merge_after: int = MERGE_AFTER,
        storage: dict[str, str] | None = None,
    ) -> None:
        super().__init__(query)
        self._table, self._storage = str(table), storage
        self._day, self._merge_after = day, merge_after
        self._seen: Any = None

    def has(self, name: BatchName) -> bool:
        """Returns True if the table has a commit of this batch or a later one; `commit` goes to the table as seen here.

        Delta Lake refuses a commit whose writer has committed since the table was seen. So a driver that was taken for
        dead and its successor do not both commit a batch.
        """
        from deltalake import DeltaTable  # noqa: PLC0415  for who writes

        self._seen = None
        if not DeltaTable.is_deltatable(self._table, storage_options=self._storage):
            return False
        self._seen = DeltaTable(self._table, storage_options=self._storage)
        known = self._seen.transaction_version(name.writer)
        return known is not None and known >= name.number

    def commit(self, rows: Any, name: BatchName) -> None:
        """Appends the rows. Raises CommitFailedError if another driver committed the batch meanwhile."""
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake  # noqa: PLC0415

        data = arrow_rows(rows)
        check_day(data.column_names, self._day)
        if self._day is not None:
            data = data.append_column(DAY, data[self._day].cast("date32"))
        partitions = [DAY] if self._day is not None else None
        if self._seen is None:
            DeltaTable.create(
                self._table, data.schema, mode="ignore", partition_by=partitions, storage_options=self._storage
            )
            if self.has(name):  # the table that another driver made
                return
        once = CommitProperties(app_transactions=[Transaction(name.writer, name.number)])
        write_deltalake(
            self._seen, data, mode="append", schema_mode="merge", partition_by=partitions, commit_properties=once
        )
        if self._merge_after and name.number % self._merge_after == self._merge_after - 1:
            DeltaTable(self._table, storage_options=self._storage).optimize.compact()
