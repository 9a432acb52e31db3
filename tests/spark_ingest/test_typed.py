"""Columns by schema files in real queries: a batch of typed rows, and a file that gets a field while a stream runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.schema_config import KeptSchemas

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"value": {"type": "number"}, "topic": {"type": "string"}}}


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_typed_rows_reasons_and_a_field_that_comes_later(spark: Any, tmp_path: Path) -> None:
    import cbor2

    from spark_ingest.functions import cbor, senml
    from spark_ingest.typed import typed, typed_streams

    file = tmp_path / "climate.json"
    file.write_text(json.dumps(SCHEMA))
    payloads = [
        ("plant/a/climate", b'{"value": 1.5, "topic": "t", "new": 2}'), ("plant/b/climate", b'{"value": "x"}'),
        ("plant/b/other", b"{}"), ("plant/climate", b"{}"), ("plant/c/climate", None),
    ]  # fmt: skip
    rows = spark.createDataFrame(payloads, "topic string, payload binary")
    found = typed(rows, str(file), "plant/+/climate").orderBy("row_topic").collect()
    assert [(r.row_topic, r.value, r.topic, r.more, r.reason) for r in found] == [
        ("plant/a/climate", 1.5, "t", '{"new":2}', None),
        ("plant/b/climate", None, None, None, "schema: does not fit properties/value/type"),
        ("plant/c/climate", None, None, None, None),
    ]
    packed = [
        ("c", cbor2.dumps({"value": 2})), ("s", b'[{"bn":"a:","bt":1.7e9,"n":"t","u":"Cel","v":3}]'), ("bad", b"\xff"),
    ]  # fmt: skip
    made = spark.createDataFrame(packed, "name string, payload binary")
    made = made.select("name", cbor("payload", "value double").alias("c"), senml("payload").alias("s"))
    by_name = {r.name: r for r in made.collect()}
    assert by_name["c"].c.value.value == 2.0
    record = by_name["s"].s.value[0]
    assert (record.name, record.unit, record.value, record.time.year) == ("a:t", "Cel", 3.0, 2023)
    assert by_name["bad"].c.reason.startswith("cbor: malformed")
    (tmp_path / "schemas.yaml").write_text("climate: {topic: plant/+/climate, schema: climate.json}\n")
    rows.limit(1).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    seen: list[Any] = []
    to = typed_streams(stream, str(tmp_path / "schemas.yaml"))["climate"].writeStream
    query = to.foreachBatch(lambda batch, _: seen.extend(batch.collect())).start()
    try:
        query.processAllAvailable()
        newer = {**SCHEMA, "properties": {**SCHEMA["properties"], "new": {"type": "string"}}}
        file.write_text(json.dumps(newer))
        os.utime(file, (2e9, 2e9))
        rows.limit(1).write.mode("append").parquet(str(tmp_path / "rows"))
        query.processAllAvailable()
    finally:
        query.stop()
    assert [row.reason for row in seen] == [None, "schema: does not fit properties/new/type"]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_field_that_comes_later_is_a_column_of_the_next_micro_batch(spark: Any, tmp_path: Path) -> None:
    """By the schemas that a receiver keeps in its spool, into a table that grows."""
    import duckdb

    from spark_ingest.sinks.parquet import ParquetSink, committed_files
    from spark_ingest.typed import typed_streams

    file, config, spool = tmp_path / "climate.json", tmp_path / "schemas.yaml", tmp_path / "spool"
    file.write_text(json.dumps(SCHEMA))
    config.write_text("climate: {topic: plant/+/climate, schema: climate.json}\n")
    kept = KeptSchemas(config, spool)
    kept.keep_schemas()
    rows = spark.createDataFrame(
        [("plant/a/climate", b'{"value": 1, "ppm": 400}', "2026-11-22")], "topic string, payload binary, day string"
    )
    sink = ParquetSink(str(tmp_path / "table"), "climate", day=None)

    def write(batch: Any, number: int) -> None:
        sink(typed_streams(batch, str(spool))["climate"].drop("payload"), number)

    rows.write.parquet(str(tmp_path / "rows"))
    query = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows")).writeStream.foreachBatch(write).start()
    try:
        query.processAllAvailable()
        file.write_text(json.dumps({**SCHEMA, "properties": {**SCHEMA["properties"], "ppm": {"type": "integer"}}}))
        os.utime(file, (2e9, 2e9))
        kept.renew_schemas()
        rows.write.mode("append").parquet(str(tmp_path / "rows"))
        query.processAllAvailable()
    finally:
        query.stop()
    files = committed_files(str(tmp_path / "table"))
    told = duckdb.execute(f"SELECT value, ppm, more FROM read_parquet({files}, union_by_name = true) ORDER BY more")
    assert told.fetchall() == [(1.0, None, '{"ppm":400}'), (1.0, 400, None)]
