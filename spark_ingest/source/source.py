"""The Spark data source `veilmq` and its registration.

    from spark_ingest import register
    register(spark)
    rows = spark.readStream.format("veilmq").option("spool", ...).option("grants", ...).load()

Structured Streaming with micro-batches, and batch reads of the same spool. Real-time and continuous mode are
not for Python sources. Options are checked here, when the query is made.
"""
# ruff: noqa: N802  Spark chose these names

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema

from spark_ingest.errors import BadOption
from spark_ingest.opening import DDL, schema_of
from spark_ingest.options import Options, parse_options
from spark_ingest.source.reader import SpoolReader, SpoolStreamReader

if TYPE_CHECKING:
    from spark_ingest.receiver import ReplicaClient
    from spark_ingest.writing import BatchWriter, StreamWriter


class VeilMQDataSource(DataSource):
    """Rows of sealed publications, opened in the executors."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "veilmq"

    def schema(self) -> Any:
        """Fixed by option stream; fewer columns with option columns. Raises BadOption."""
        options = parse_options(self.options, batch=None)
        if not options.columns and not options.redrives:
            return DDL[options.stream]
        return from_arrow_schema(_schema(options))

    def streamReader(self, schema: Any) -> SpoolStreamReader:
        """Returns the reader for `readStream`. Raises BadOption."""
        return SpoolStreamReader(self._checked(schema), self.connect)

    def reader(self, schema: Any) -> SpoolReader:
        """Returns the reader for `read`. Raises BadOption."""
        return SpoolReader(self._checked(schema, batch=True))

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """Returns the writer for `write`. Raises BadOption."""
        from spark_ingest.writing import batch_writer  # noqa: PLC0415  the gateway's client: for writers only

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
        """Returns the writer for `writeStream`. Raises BadOption."""
        from spark_ingest.writing import stream_writer  # noqa: PLC0415  the gateway's client: for writers only

        return stream_writer(self.options, schema)

    @staticmethod
    def connect(options: Options) -> ReplicaClient:
        """The client for the replicas of the home region. A subclass may bring another one."""
        from spark_ingest.receiver.replicas import RegionReplicas  # noqa: PLC0415  sockets and TLS: for the driver's receiver only

        return RegionReplicas(options)

    def _checked(self, schema: Any, *, batch: bool = False) -> Options:
        options = parse_options(self.options, batch=batch)
        ours = from_arrow_schema(_schema(options))
        if [(each.name, each.dataType) for each in schema] != [(each.name, each.dataType) for each in ours]:
            raise BadOption(f"veilmq has a fixed schema for stream={options.stream}; remove .schema(...)")
        return options


def _schema(options: Options) -> Any:
    return schema_of(options.stream, options.columns, redrives=options.redrives)


def register(spark: Any) -> None:
    """Make `format("veilmq")` known to a session; once is enough, again does no harm."""
    spark.dataSource.register(VeilMQDataSource)
