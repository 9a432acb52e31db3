"""Payloads that are made to harm who reads them by a schema file: each is a reason, soon, and none ends a process."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.schema import BadSchema
from spark_ingest.payloads.schemas import SchemaFile

MANY = "more than 65536 values"
DEEP = "nested deeper than 64"
MESSAGE = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
RICH: dict[str, Any] = {
    "type": "record", "name": "Rich", "namespace": "plant", "fields": [
        {"name": "points", "type": {"type": "array", "items": {"type": "record", "name": "Point", "fields": [
            {"name": "x", "type": ["null", "double", "string"]}, {"name": "n", "type": "null"}]}}},
        {"name": "by", "type": {"type": "map", "values": ["int", "Point"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "next", "type": ["null", "Rich"]}, {"name": "last", "type": "Point"}, {"name": "f", "type": "float"},
    ],
}  # fmt: skip


def number(value: int) -> bytes:
    """Returns a number as Avro writes it."""
    left, out = (value << 1) ^ (value >> 63), b""
    while left > 0x7F:
        out, left = out + bytes([left & 0x7F | 0x80]), left >> 7
    return out + bytes([left])


def record(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]})


def object_of(rule: Any) -> str:
    return json.dumps({"type": "object", "properties": {"v": rule}})


def opened(name: str, text: str, form: str = "json") -> SchemaFile:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text)
        return SchemaFile.open(str(path), form)


WIDE = {"type": "record", "name": "E", "fields": [{"name": f"n{i}", "type": "null"} for i in range(500)]}
ENDLESS = number(1 << 60) + b"\0"
ATTACKS = [
    ("nulls.avsc", record({"type": "array", "items": "null"}), ENDLESS, MANY),
    ("empty.avsc", record({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), ENDLESS, MANY),
    ("fixed.avsc", record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), ENDLESS, MANY),
    ("blocks.avsc", record({"type": "array", "items": "null"}), (number(-60_000) + b"\0") * 9 + b"\0", MANY),
    ("wide.avsc", record({"type": "array", "items": WIDE}), number(10_000) + b"\0", MANY),
    ("list.avsc", json.dumps({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}),
     b"\x02" * 200_000 + b"\0", DEEP),
    ("self.avsc", json.dumps({"type": "record", "name": "L", "fields": [{"name": "next", "type": "L"}]}), b"", DEEP),
    ("negative.avsc", record("bytes"), number(-5) + b"abcde", "cut short"),
    ("branch.avsc", record(["null", "int"]), number(-1), "no such branch"),
    ("long.avsc", record("long"), b"\xff" * 9 + b"\x7f", "more than 64 bits"),
    ("decimal.avsc", record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
     number(1_000_000) + b"\x7f" * 1_000_000, "decimal larger"),
    ("time.avsc", record({"type": "long", "logicalType": "timestamp-millis"}), number(1 << 62), "malformed"),
    ("nan.json", object_of({"type": "number"}), b'{"v": NaN}', "malformed"),
    ("half.json", object_of({"type": "string"}), b'{"v": "\\ud800"}', "not UTF-8"),
    ("name.json", object_of({"type": "string"}), b'{"\\ud800": 1}', "not UTF-8"),
    ("deep.json", object_of({"$ref": "#"}), b'{"v":' * 300 + b"1" + b"}" * 300, DEEP),
    ("deeper.json", object_of({}), b"[" * 500_000, "malformed"),
    ("loop.json", '{"properties": {"v": {}}, "allOf": [{"$ref": "#"}]}', b"{}", "cannot be checked"),
    ("gone.json", object_of({"$ref": "#/nowhere"}), b'{"v": 1}', "cannot be checked"),
    ("multiple.json", object_of({"multipleOf": 0.1}), b'{"v": 1' + b"0" * 4000 + b"}", "cannot be checked"),
    ("infinite.json", object_of({"multipleOf": 0.1}), b'{"v": 1e999}', "cannot be checked"),
    ("values.json", object_of({}), b'{"v": [' + b"0," * 70_000 + b"0]}", MANY),
    ("wide.proto", MESSAGE + "message M { repeated S s = 1; } message S {"
     + "".join(f"int32 f{i} = {i + 1};" for i in range(300)) + "}", b"\x0a\x00" * 300_000, MANY),
    ("numbers.proto", MESSAGE + "message M { repeated int32 n = 1; }", b"\x0a\x80\xea\x30" + b"\0" * 800_000, MANY),
    ("time.proto", MESSAGE + "message M { google.protobuf.Timestamp t = 1; }",
     b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", "malformed"),
    ("group.proto", MESSAGE + "message M { int32 n = 2; }", b"\x0b" * 900_000, "a group"),
]  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "text", "payload", "reason"), ATTACKS, ids=[each[0] for each in ATTACKS])
def test_a_payload_that_is_made_to_harm_is_a_reason(name: str, text: str, payload: bytes, reason: str) -> None:
    schema = opened(name, text)
    with pytest.raises(PayloadError, match=reason):
        schema.decode(payload)


def test_a_message_in_itself_is_bounded() -> None:
    schema = opened("m.proto", MESSAGE + "message M { M m = 1; int32 n = 2; }")
    inner = b"\x10\x01"
    for _ in range(70):
        inner = (
            b"\x0a" + bytes([len(inner)] if len(inner) < 0x80 else [len(inner) & 0x7F | 0x80, len(inner) >> 7]) + inner
        )
    with pytest.raises(PayloadError, match=DEEP):
        schema.decode(inner)
    assert schema.ddl == "`m` string, `n` bigint"


@pytest.mark.timeout(60)
def test_unique_items_are_told_in_time_and_as_json_has_them() -> None:
    schema = opened("u.json", object_of({"type": "array", "uniqueItems": True}))
    apart = [
        [{"a": each} for each in range(15_000)],
        [1, True, "1", [1], {"a": 1}],
        [{"a": 1, "b": 2}, {"a": 2, "b": 1}],
    ]
    for items in apart:
        schema.decode(json.dumps({"v": items}).encode())
    for items in ([1, 1.0], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], [[], 3, []], ["x", "x"]):
        with pytest.raises(PayloadError, match="uniqueItems"):
            schema.decode(json.dumps({"v": items}).encode())


def test_a_number_beyond_floats_is_an_infinity_and_ends_nothing() -> None:
    schema = opened("i.json", object_of({"type": "number"}))
    assert schema.decode(b'{"v": -1e999}') == ('{"v":"-Infinity"}', None)


@pytest.mark.parametrize("reference", ["other.json", "http://127.0.0.1:1/x.json#/a", "file:///etc/passwd"])
def test_a_reference_leads_nowhere_but_into_the_file(reference: str) -> None:
    text = json.dumps({"properties": {"v": {"$ref": reference}, "w": {"$ref": "#/properties/v"}}})
    with pytest.raises(BadSchema, match="to another file"):
        opened("r.json", text)


def test_columns_of_types_that_are_named_again() -> None:
    assert opened("r.avsc", json.dumps(RICH)).ddl == (
        "`points` array<struct<`x`: string, `n`: string>>, `by` map<string, string>, `kind` string, `mark` binary, "
        "`price` string, `next` string, `last` struct<`x`: string, `n`: string>, `f` float"
    )


_rich = opened("r.avsc", json.dumps(RICH))
_parsed: Any = fastavro.parse_schema(RICH)
_points = st.fixed_dictionaries(
    {"x": st.none() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")), "n": st.none()}
)
_data = st.recursive(
    st.none(),
    lambda inner: st.fixed_dictionaries({
        "points": st.lists(_points, max_size=3), "kind": st.sampled_from(["A", "B"]),
        "by": st.dictionaries(st.text(max_size=3), st.integers(-9, 9) | _points),
        "mark": st.binary(min_size=2, max_size=2), "price": st.decimals(-99, 99, places=2),
        "next": inner, "last": _points, "f": st.just(0.5),
    }),
    max_leaves=4,
).filter(lambda each: each is not None)  # fmt: skip


@given(_data, st.binary(max_size=4), st.integers(0, 400))
def test_what_the_library_writes_is_read_and_what_is_altered_ends_nothing(
    datum: dict[str, Any], other: bytes, at: int
) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _parsed, datum)
    payload = out.getvalue()
    value, _ = _rich.decode(payload)
    assert json.loads(value)["kind"] == datum["kind"]
    altered = payload[:at] + other + payload[at + len(other) :]
    try:
        _rich.decode(altered)
    except PayloadError:
        return
