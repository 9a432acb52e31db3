"""Rows back into MQTT: publishing through a gateway at least once, ids telling repeats, an exact sink.

Imports `errors`; knows no spool.
"""

from __future__ import annotations

from spark_ingest.writing.sink import PublicationSink
from spark_ingest.writing.writer import BatchWriter, StreamWriter, batch_writer, stream_writer

__all__ = [
    "BatchWriter",
    "PublicationSink",
    "StreamWriter",
    "batch_writer",
    "stream_writer",
]
