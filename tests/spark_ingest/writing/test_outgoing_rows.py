"""Rows that are written back become publications, or one line with the row's number."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ingest.errors import BadOption, PublishError
from spark_ingest.writing.outgoing_rows import ID_PROPERTY, OutgoingRows, check_schema, publications

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("topic string, payload string", None),
        ("topic string, payload binary, qos int, retain boolean, properties map<string,string>, id string", None),
        ("topic string, payload binary, properties array<struct<name: string, value: string>>", None),
        ("topic string", "column payload is missing"),
        ("topic string, payload binary, sequence long", "'sequence' has no meaning"),
        ("topic string, payload int", "payload is int"),
    ],
)
def test_columns_are_checked_when_the_query_is_made(ddl: str, told: str | None) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    kinds = {"string": types.StringType, "binary": types.BinaryType, "int": types.IntegerType,
             "long": types.LongType, "boolean": types.BooleanType}  # fmt: skip
    pair = types.StructType([types.StructField(each, types.StringType()) for each in ("name", "value")])
    fields = []
    for part in re.findall(r"(\w+) (map<.*?>|array<.*>|\w+)", ddl):
        kind = types.MapType(types.StringType(), types.StringType()) if part[1].startswith("map") else None
        kind = types.ArrayType(pair) if part[1].startswith("array") else kind
        fields.append(types.StructField(part[0], kind or kinds[part[1]]()))
    if told is None:
        check_schema(types.StructType(fields))
        return
    with pytest.raises(BadOption, match=re.escape(told)):
        check_schema(types.StructType(fields))


def test_rows_become_publications() -> None:
    structs = [[{"name": "k", "value": "1"}, {"name": ID_PROPERTY, "value": "of an earlier hop"}], None]
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["a/b", "c"], "payload": ["text", ""], "qos": [0, 2], "retain": [None, True], "properties": structs}
    )
    first, second = publications(batch, "q/3/1", 40)
    assert first == OutgoingRows("a/b", b"text", 1, False, (("k", "1"), (ID_PROPERTY, "q/3/1/40")))
    assert second == OutgoingRows("c", b"", 2, True, ((ID_PROPERTY, "q/3/1/41"),))
    (mapped,) = publications(
        pa.RecordBatch.from_arrays(
            [pa.array(["t"]), pa.array([b"\x00"]), pa.array([[("x", "y")]], pa.map_(pa.string(), pa.string())),
             pa.array(["own"])],
            names=["topic", "payload", "properties", "id"],
        ), "q", 0,
    )  # fmt: skip
    assert mapped.properties == (("x", "y"), (ID_PROPERTY, "own"))


@pytest.mark.parametrize(
    "row",
    [
        {"topic": None, "payload": b""}, {"topic": "", "payload": b""}, {"topic": "a/#", "payload": b""},
        {"topic": "a/+", "payload": b""}, {"topic": "a\0", "payload": b""}, {"topic": "a", "payload": None},
        {"topic": "a", "payload": b"", "qos": 3}, {"topic": "a", "payload": b"", "properties": [("k", None)]},
    ],
)  # fmt: skip
def test_a_row_that_mqtt_cannot_carry_is_one_line_with_its_number(row: dict[str, Any]) -> None:
    kinds = {"topic": pa.string(), "payload": pa.binary(), "qos": pa.int32(),
             "properties": pa.map_(pa.string(), pa.string())}  # fmt: skip
    batch = pa.RecordBatch.from_arrays([pa.array([v], kinds[k]) for k, v in row.items()], names=list(row))
    with pytest.raises(PublishError, match="row q/0/7"):
        list(publications(batch, "q/0", 7))


@settings(max_examples=50)
@given(st.lists(st.integers(1, 5), max_size=6))
def test_ids_do_not_depend_on_how_rows_are_cut_into_batches(sizes: list[int]) -> None:
    found, first = [], 0
    for size in sizes:
        batch = pa.RecordBatch.from_pydict({"topic": ["t"] * size, "payload": [b"x"] * size})
        found += [row.id for row in publications(batch, "p", first)]
        first += size
    assert found == [f"p/{number}" for number in range(sum(sizes))]
