"""Sinks that take each batch of rows once, whatever dies between: `foreachBatch(ParquetSink(...))`.

    parquet    files with a manifest for each batch; Spark's executors write
    delta      a table of Delta Lake; the driver writes
    iceberg    a table of Apache Iceberg in any catalog of pyiceberg; the driver writes
    postgres   a table of PostgreSQL; each task writes its rows

Each module has one class, and the library that it needs is installed with `veilmq[sinks]`. `sink.Sink` is the base of a
sink of one's own. Not here: rows back into MQTT (`writing`).
"""

from __future__ import annotations

from spark_ingest.sinks.sink import Sink

__all__ = ["Sink"]
