"""The exact sink: a batch that Spark repeats replaces its first attempt, and payloads are digests only."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.writing.sink import Arrived, PublicationSink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def rows(spark: Any, *payloads: str, publisher: str = "gw") -> Any:
    told = [(publisher, number, f"plant/{number}", payload.encode()) for number, payload in enumerate(payloads, 1)]
    return spark.createDataFrame(told, "publisher string, sequence bigint, topic string, payload binary")


def test_a_repeated_batch_replaces_its_first_attempt(spark: Any, tmp_path: Path) -> None:
    sink = PublicationSink(tmp_path / "sink.sqlite", id_field="id")
    sink.write(rows(spark, '{"id": "m1"}', "no json"), 0)
    sink.write(rows(spark, '{"id": "m2"}'), 1)
    sink.write(rows(spark, '{"id": "m1"}', "no json"), 0)  # after a crash
    found = list(sink.arrived_rows())
    assert found == [*sink.arrived_in(0), *sink.arrived_in(1)]
    assert [(one.sequence, one.topic, one.id) for one in found] == [
        (1, "plant/1", "m1"), (2, "plant/2", None), (1, "plant/1", "m2"),
    ]  # fmt: skip
    assert found[0].digest == hashlib.sha256(b'{"id": "m1"}').hexdigest()
    assert list(sink.arrived_in(7)) == []
    again = PublicationSink(tmp_path / "sink.sqlite")
    assert list(again.arrived_rows()) == found, "kept over a restart"
    again.write(rows(spark, '{"id": "m3"}'), 2)
    assert list(again.arrived_in(2)) == [Arrived("gw", 1, "plant/1", hashlib.sha256(b'{"id": "m3"}').hexdigest())]
    assert b"m3" not in (tmp_path / "sink.sqlite").read_bytes()


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sink").write_bytes(b"no database at all, and long enough to be read as one" * 40)
    with pytest.raises(sqlite3.Error):
        PublicationSink(tmp_path / "sink")
