"""Spark's side of writing back: a task publishes its rows and ends when all of them are acknowledged.

The driver makes the writer and tells it of commits; pickled copies run in executors. The key of idempotence
(`outgoing_rows`) comes from Spark's properties of every task: query, micro-batch, partition.
"""

# ruff: noqa: N803  Spark chose these names

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_ingest.errors import BadOption, PublishError
from spark_ingest.writing.outgoing_rows import OutgoingRows, check_schema, publications
from spark_ingest.writing.publish_options import PublishOptions, parse_publish_options
from spark_ingest.writing.publisher import RowPublisher

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark gives the tasks of a streaming query; the first is the id in the checkpoint."""


@dataclass
class PublishedCommit(WriterCommitMessage):
    """The number of rows a task published."""

    rows: int


class StreamWriter(DataSourceStreamArrowWriter):
    """A writer for `writeStream`: ids are the query's."""

    def __init__(self, options: PublishOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publishes the rows of a task, again when Spark repeats it. Raises PublishError."""
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise PublishError("Spark did not tell the task its query and batch; use format('veilmq') in writeStream")
        first = _named(self._options.write_id, query)
        return _publish(self._options, f"{first}/{batch}/{task.partitionId()}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: acknowledged rows are the gateway's."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: nothing can be taken back, and the repeated batch carries its former ids."""


class BatchWriter(DataSourceArrowWriter):
    """A writer for `write`: a random id a write, which repeated tasks repeat; option write_id for repeated writes."""

    def __init__(self, options: PublishOptions) -> None:
        self._options = options
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Publishes the rows of a task, as `StreamWriter.write` does."""
        task = _task()
        # In foreachBatch two writes of one batch differ by their write_id only, which the user then gives.
        told = self._options.write_id is not None
        query, batch = (task.getLocalProperty(each) if told else None for each in (QUERY_ID, BATCH_ID))
        return _publish(self._options, f"{_named(self._write_id, query)}/{batch or 0}/{task.partitionId()}", iterator)


def stream_writer(given: Mapping[str, str], schema: Any) -> StreamWriter:
    """Returns a writer for `writeStream`. Raises BadOption."""
    check_schema(schema)
    return StreamWriter(parse_publish_options(given))


def batch_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter:
    """Returns a writer for `write`. Raises BadOption."""
    if overwrite:
        raise BadOption('what was published cannot be overwritten; write .mode("append")')
    check_schema(schema)
    return BatchWriter(parse_publish_options(given))


def _named(write_id: str | None, query: str | None) -> str:
    """Returns the write's id. Batches are numbered by checkpoint: an old write_id with a new checkpoint would repeat
    ids.
    """
    return "-".join(each for each in (write_id, query) if each)


def _task() -> Any:
    task = TaskContext.get()
    assert task is not None, "in an executor there is one"
    return task


def _publish(options: PublishOptions, prefix: str, batches: Iterator[Any]) -> PublishedCommit:
    async def run() -> int:
        return await RowPublisher(options).publish_all(_rows(batches, prefix))

    return PublishedCommit(asyncio.run(run()))


def _rows(batches: Iterator[Any], prefix: str) -> Iterator[OutgoingRows]:
    first = 0
    for batch in batches:
        yield from publications(batch, prefix, first)
        first += batch.num_rows
