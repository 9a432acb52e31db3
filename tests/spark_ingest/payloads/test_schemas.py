"""Schema files: columns, payloads that fit and that do not, optional fields that come while a query runs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.schema import BadSchema
from spark_ingest.payloads.schemas import SchemaFile
from tests.spark_ingest.payloads.climate import CLIMATE, PROTO, RECORD, avro, file, told


def test_columns_of_each_format(tmp_path: Path) -> None:
    assert SchemaFile.open(file(tmp_path, "c.json", CLIMATE)).ddl == (
        "`value` double, `at` timestamp, `bins` array<bigint>, `by` struct<`id`: bigint>, `any` string"
    )
    assert SchemaFile.open(file(tmp_path, "c.avsc", RECORD)).ddl == (
        "`value` double, `raw` binary, `at` timestamp, `unit` string"
    )
    made = file(tmp_path, "c.proto", PROTO % "")
    assert SchemaFile.open(made).ddl == (
        "`value` double, `n` bigint, `unit` string, `bins` array<bigint>, `at` timestamp, `kind` string, "
        "`by` map<string, double>, `raw` binary"
    )
    assert SchemaFile.open(f"{made}#Other").ddl == "`on` boolean"


def test_an_optional_field_comes_while_the_query_runs(tmp_path: Path) -> None:
    """Executors have the file as it was when the query began, and follow it where they find it."""
    more = json.loads(json.dumps(CLIMATE))
    more["properties"]["ppm"] = {"type": "integer"}
    schema = pickle.loads(pickle.dumps(SchemaFile.open(file(tmp_path, "c.json", CLIMATE))))
    file(tmp_path, "c.json", more)
    schema.renew_texts()
    assert told(schema, b'{"value": 1, "ppm": 400}') == ({"value": 1}, {"ppm": 400})
    with pytest.raises(PayloadError, match="ppm/type"):
        schema.decode(b'{"value": 1, "ppm": "x"}')
    file(tmp_path, "c.json", "{")
    schema.renew_texts()
    assert told(schema, b'{"value": 1}') == ({"value": 1}, None), "a broken file changes nothing"
    (tmp_path / "c.json").unlink()
    schema.renew_texts()
    assert told(schema, b'{"value": 1}') == ({"value": 1}, None)


def test_avro_and_protocol_buffers_follow_too(tmp_path: Path) -> None:
    newer = {**RECORD, "fields": [*RECORD["fields"], {"name": "ppm", "type": ["null", "int"], "default": None}]}
    schema = SchemaFile.open(file(tmp_path, "c.avsc", RECORD))
    file(tmp_path, "c.avsc", newer)
    schema.renew_texts()
    told_by = {"value": 1.0, "raw": b"", "at": 0}
    assert told(schema, avro(newer, True, **told_by, ppm=400))[1] == {"ppm": 400}
    assert told(schema, avro(RECORD, True, **told_by))[1] is None, "a publisher that has not changed yet"
    schema = SchemaFile.open(file(tmp_path, "c.proto", PROTO % ""))
    file(tmp_path, "c.proto", PROTO % "optional int32 ppm = 9;")
    schema.renew_texts()
    assert told(schema, b"\x48\x05")[1] == {"ppm": 5}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [("c.json", "{", "no JSON Schema"), ("c.json", '{"type": 7}', "no JSON Schema"), ("c.json", "{}", "properties"),
     ("c.json", '{"properties": {}}', "1 to 1000 fields"), ("c.avsc", '"string"', "record"), ("c.avsc", "[", "no Avro"),
     ("c.proto", "message {", "protoc"), ("c.proto", 'syntax = "proto3";', "no message"), ("c.xsd", "", r"\*.json")],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(BadSchema, match=why) as error:
        SchemaFile.open(file(tmp_path, name, text))
    assert "\n" not in str(error.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_reason(tmp_path_factory: pytest.TempPathFactory, payload: bytes) -> None:
    path = tmp_path_factory.getbasetemp()
    for name, text in (("f.json", json.dumps(CLIMATE)), ("f.avsc", json.dumps(RECORD)), ("f.proto", PROTO % "")):
        if not (path / name).exists():
            (path / name).write_text(text)
        schema = _files.setdefault(name, SchemaFile.open(str(path / name)))
        try:
            schema.decode(payload)
        except PayloadError:
            continue


_files: dict[str, SchemaFile] = {}
