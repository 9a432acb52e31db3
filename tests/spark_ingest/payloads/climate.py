"""Schemas of one kind of message in each format, as files that tests write."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import fastavro

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
