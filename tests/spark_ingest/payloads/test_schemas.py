"""Schema files: columns, payloads that fit and that do not, optional fields that come while a query runs."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import cbor2
import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.schema import BadSchema
from spark_ingest.payloads.schemas import SchemaFile

CLIMATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "value": {"type": "number"}, "at": {"type": "string", "format": "date-time"},
        "bins": {"type": "array", "items": {"type": "integer"}},
        "by": {"type": "object", "properties": {"id": {"type": ["integer", "null"]}}}, "any": {},
    },
    "required": ["value"],
}  # fmt: skip
RECORD: dict[str, Any] = {
    "type": "record", "name": "Climate", "fields": [
        {"name": "value", "type": "double"}, {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "unit", "type": ["null", "string"], "default": None},
    ],
}  # fmt: skip
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Climate {
  double value = 1; int64 n = 2; optional string unit = 3; repeated int32 bins = 4; google.protobuf.Timestamp at = 5;
  enum Kind { UNKNOWN = 0; INDOOR = 1; } Kind kind = 6; map<string, double> by = 7; bytes raw = 8; %s
}
message Other { bool on = 1; }
"""


def file(path: Path, name: str, told: Any) -> str:
    made = path / name
    before = made.stat().st_mtime if made.exists() else 1e9
    made.write_text(told if isinstance(told, str) else json.dumps(told))
    os.utime(made, (before + 10, before + 10))
    return str(made)


def told(schema: SchemaFile, payload: bytes) -> tuple[Any, Any]:
    value, more = schema.decode(payload)
    return json.loads(value), None if more is None else json.loads(more)


def avro(record: dict[str, Any], single: bool = False, **fields: Any) -> bytes:
    out, parsed = io.BytesIO(), fastavro.parse_schema(record)
    if single:
        canonical = fastavro.schema.to_parsing_canonical_form(parsed)
        mark = int(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"), 16)
        out.write(b"\xc3\x01" + mark.to_bytes(8, "big"))
    fastavro.schemaless_writer(out, parsed, fields)
    return out.getvalue()


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


def test_json_and_cbor_are_checked(tmp_path: Path) -> None:
    for form, dump in (("json", lambda each: json.dumps(each).encode()), ("cbor", cbor2.dumps)):
        schema = SchemaFile.open(file(tmp_path, "c.json", CLIMATE), form)
        assert told(schema, dump({"value": 1.5, "new": [2]})) == ({"value": 1.5}, {"new": [2]})
        for bad, why in (({"value": "1"}, "value/type"), ({}, "required"), ([], "type")):
            with pytest.raises(PayloadError, match=why):
                schema.decode(dump(bad))
    with pytest.raises(PayloadError, match="malformed"):
        SchemaFile.open(file(tmp_path, "c.json", CLIMATE)).decode(b'{"value":')


def test_avro_data_and_single_objects(tmp_path: Path) -> None:
    schema = SchemaFile.open(file(tmp_path, "c.avsc", RECORD))
    for single in (False, True):
        payload = avro(RECORD, single, value=1.5, raw=b"x", at=1000, unit="bar")
        found = ({"value": 1.5, "raw": "eA==", "at": "1970-01-01T00:00:01+00:00", "unit": "bar"}, None)
        assert told(schema, payload) == found
        for bad in (payload[:-1], payload + b"x"):
            with pytest.raises(PayloadError):
                schema.decode(bad)
    with pytest.raises(PayloadError, match="another Avro schema"):
        schema.decode(b"\xc3\x01" + bytes(20))


def test_a_message_of_protocol_buffers(tmp_path: Path) -> None:
    schema = SchemaFile.open(file(tmp_path, "c.proto", PROTO % ""))
    payload = bytes.fromhex(
        "09000000000000f83f 10ffffffffffffffff7f 2a020801 3001 3a0c0a0161 11000000000000f83f 420178"
    )
    assert told(schema, payload) == (
        {"value": 1.5, "n": 2**63 - 1, "bins": [], "at": "1970-01-01T00:00:01", "kind": "INDOOR", "by": {"a": 1.5},
         "raw": "eA=="}, None,
    )  # fmt: skip
    with pytest.raises(PayloadError, match="malformed"):
        schema.decode(b"\x09\x00")


def test_an_optional_field_comes_while_the_query_runs(tmp_path: Path) -> None:
    """Executors have the file as it was when the query began, and follow it where they find it."""
    more = json.loads(json.dumps(CLIMATE))
    more["properties"]["ppm"] = {"type": "integer"}
    schema = pickle.loads(pickle.dumps(SchemaFile.open(file(tmp_path, "c.json", CLIMATE))))
    file(tmp_path, "c.json", more)
    schema.renew()
    assert told(schema, b'{"value": 1, "ppm": 400}') == ({"value": 1}, {"ppm": 400})
    with pytest.raises(PayloadError, match="ppm/type"):
        schema.decode(b'{"value": 1, "ppm": "x"}')
    file(tmp_path, "c.json", "{")
    schema.renew()
    assert told(schema, b'{"value": 1}') == ({"value": 1}, None), "a broken file changes nothing"
    (tmp_path / "c.json").unlink()
    schema.renew()
    assert told(schema, b'{"value": 1}') == ({"value": 1}, None)


def test_avro_and_protocol_buffers_follow_too(tmp_path: Path) -> None:
    newer = {**RECORD, "fields": [*RECORD["fields"], {"name": "ppm", "type": ["null", "int"], "default": None}]}
    schema = SchemaFile.open(file(tmp_path, "c.avsc", RECORD))
    file(tmp_path, "c.avsc", newer)
    schema.renew()
    told_by = {"value": 1.0, "raw": b"", "at": 0}
    assert told(schema, avro(newer, True, **told_by, ppm=400))[1] == {"ppm": 400}
    assert told(schema, avro(RECORD, True, **told_by))[1] is None, "a publisher that has not changed yet"
    schema = SchemaFile.open(file(tmp_path, "c.proto", PROTO % ""))
    file(tmp_path, "c.proto", PROTO % "optional int32 ppm = 9;")
    schema.renew()
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
