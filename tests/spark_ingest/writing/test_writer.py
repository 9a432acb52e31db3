"""Ids of published rows: the same when Spark repeats a batch of a checkpoint, others under another checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_ingest.writing import writer
from spark_ingest.writing.publish_options import parse_publish_options
from spark_ingest.writing.writer import BATCH_ID, QUERY_ID, BatchWriter, StreamWriter

pytest.importorskip("pyspark")


class Task:
    """What Spark tells a task."""

    def __init__(self, query: str | None, batch: str | None) -> None:
        self._told = {QUERY_ID: query, BATCH_ID: batch}

    def getLocalProperty(self, name: str) -> str | None:
        return self._told[name]

    def partitionId(self) -> int:
        return 3


class Publishes:
    """Keeps the ids of what it is to publish."""

    ids: list[str]

    def __init__(self, options: Any) -> None:
        pass

    async def publish_all(self, rows: Iterator[Any]) -> int:
        Publishes.ids = [row.id for row in rows]
        return len(Publishes.ids)


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(writer, "RowPublisher", Publishes)
    batch = pa.record_batch({"topic": ["a", "b"], "payload": [b"1", b"2"]})

    def written(made: Any, query: str | None, number: str | None, **more: str) -> list[str]:
        monkeypatch.setattr(writer, "_task", lambda: Task(query, number))
        made(parse_publish_options({"host": "gw", **more})).write(iter([batch]))
        return Publishes.ids

    return written


@pytest.mark.parametrize("kind", [StreamWriter, BatchWriter])
def test_a_write_id_that_is_kept_with_a_new_checkpoint_repeats_no_ids(ids: Any, kind: Any) -> None:
    """Batches begin at 0 there: rows that are new would be dropped as repeats. In writeStream and in foreachBatch."""
    first = ids(kind, "query-1", "0", write_id="back")
    assert first == ids(kind, "query-1", "0", write_id="back") == ["back-query-1/0/3/0", "back-query-1/0/3/1"]
    others = [
        ids(kind, "query-1", "1", write_id="back"),
        ids(kind, "query-2", "0", write_id="back"),
        ids(kind, "query-1", "0", write_id="forth"),
        ids(kind, "query-1", "0"),
    ]
    assert len({*first, *(each for other in others for each in other)}) == 10


def test_ids_without_a_write_id_and_of_repeated_batch_writes(ids: Any) -> None:
    assert ids(StreamWriter, "query-1", "7") == ["query-1/7/3/0", "query-1/7/3/1"]
    assert ids(BatchWriter, None, None, write_id="nightly") == ["nightly/0/3/0", "nightly/0/3/1"]
    assert ids(BatchWriter, None, None) != ids(BatchWriter, None, None)
