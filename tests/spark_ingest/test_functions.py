"""Payload functions in real Spark: values by a schema, a reason for the rest, and no query that fails."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgpack
import pytest

from spark_ingest.payloads.messagepack import PAYLOAD_BYTES_MAX

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SCHEMA = "sensor string, value double, at timestamp, raw binary, tags array<string>"
GOOD = {"sensor": "t", "value": 1.5, "at": "2026-01-01T06:00:00Z", "raw": "AQI=", "tags": ["a"]}


def frame(spark: Any, payloads: list[bytes | None]) -> Any:
    return spark.createDataFrame(list(enumerate(payloads)), "n int, payload binary").orderBy("n")


def told(rows: list[Any]) -> list[str | None]:
    """Reasons; and that there is a value or a reason, never both."""
    for row in rows:
        assert row.body.value is None or row.body.reason is None
    return [row.body.reason for row in rows]


def test_json_messagepack_and_sparkplug_by_schema(spark: Any) -> None:
    from spark_ingest.functions import json_payload, messagepack, sparkplug
    from tests.spark_ingest.payloads.test_sparkplug import BIRTH

    packed = msgpack.packb(GOOD | {"raw": b"\x01\x02", "at": msgpack.Timestamp(1_767_247_200)})
    rows = frame(spark, [json.dumps(GOOD).encode(), packed, BIRTH])
    found = rows.select(
        json_payload("payload", SCHEMA).alias("json"),
        messagepack("payload", SCHEMA).alias("pack"),
        messagepack("payload")["value"].alias("text"),
        sparkplug("payload").alias("plug"),
    ).collect()
    for value in (found[0].json.value, found[1].pack.value):
        assert (value.sensor, value.value, bytes(value.raw), value.tags) == ("t", 1.5, b"\x01\x02", ["a"])
        assert value.at == datetime.fromtimestamp(1_767_247_200)  # noqa: DTZ006  as collect() shows times
    assert json.loads(found[1].text)["at"] == "2026-01-01T06:00:00+00:00"
    assert found[0].pack.value is None
    assert found[0].pack.reason.startswith("messagepack: malformed")
    birth = found[2].plug.value
    assert (birth.seq, birth.uuid, bytes(birth.body)) == (0, "u", b"\x01\x02")
    (metric,) = birth.metrics
    assert (metric.name, metric.alias, metric.type, metric.long_value) == ("temp", 7, "Int32", -1)
    assert metric.timestamp == datetime.fromtimestamp(1)  # noqa: DTZ006


def test_what_cannot_be_decoded_has_a_reason_and_ends_no_query(spark: Any) -> None:
    from spark_ingest.functions import json_payload, messagepack, sparkplug

    hostile = [
        None, b"", b"{", b"\xff\xfe", b'{"value": "no number"}', b"[" * 200_000, b'{"value":' * 50_000, b"null",
        b'{"value": 1' + b"0" * 100_000 + b"}", b" " * (PAYLOAD_BYTES_MAX + 1), b"[1, 2]", b'"text"',
    ]  # fmt: skip
    rows = frame(spark, hostile)
    reasons = told(rows.select(json_payload("payload", SCHEMA).alias("body")).collect())
    assert reasons[0] is None
    assert all(reason is not None and reason.startswith("json: ") for reason in reasons[1:]), reasons
    assert (reasons[3], reasons[9]) == ("json: text that is not UTF-8", f"json: larger than {PAYLOAD_BYTES_MAX} bytes")
    for made in (messagepack("payload", SCHEMA), messagepack("payload", "array<int>"), sparkplug("payload")):
        reasons = told(rows.select(made.alias("body")).collect())
        assert reasons[0] is None
        assert reasons[3] is not None
        assert reasons[9] is not None


def test_more_than_one_json_value_is_a_reason(spark: Any) -> None:
    from spark_ingest.functions import json_payload

    one, other = b'{"value": 1.0, "sensor": "a"}', b'{"value": 2.0}'
    behind = [
        one + other, one + b"\n" + other + b"\n", one + b"," + other, one + b' {"value":', one + b"text", one + b"\x00",
        one + b"]", one + b"}", one + b',"key":{}', one + b"],[", one + b',"end":true} text', one + b"}, {}",
        one + b"]}", one + b'],"end":true}', one + b"] text",
    ]  # fmt: skip
    around = [one, b"\r\n\t " + one + b" \n", b"{'value': 1.0}", b'{"value": 1.0, "more": [{"end": false}]}']
    rows = frame(spark, behind + around)
    found = rows.select(json_payload("payload", SCHEMA).alias("body")).collect()
    assert told(found) == ["json: more than one value, or bytes behind it"] * len(behind) + [None] * len(around)
    assert [row.body.value.value for row in found[len(behind) :]] == [1.0] * len(around)
    lists = frame(spark, [b"[1][2]", b"[1]]", b"[1]}", b"[1],[2]", b"[1, 2]"])
    for schema in ("array<int>", "array<bigint>"):
        found = lists.select(json_payload("payload", schema).alias("body")).collect()
        assert [row.body.value for row in found] == [None, None, None, None, [1, 2]]
        assert all(told(found)[:4])


def test_ids_of_publishers_are_bytes_and_text(spark: Any) -> None:
    from spark_ingest.functions import publisher_bytes, publisher_text

    rows = spark.createDataFrame(
        [(bytes(range(16)), bytes(range(16)).hex()), (None, "no id")], "id binary, text string"
    )
    found = rows.select(publisher_text("id").alias("text"), publisher_bytes("text").alias("id")).collect()
    assert [(row.text, row.id and bytes(row.id)) for row in found] == [
        (bytes(range(16)).hex(), bytes(range(16))), (None, None)
    ]  # fmt: skip


def test_other_shapes_of_schemas(spark: Any) -> None:
    from pyspark.sql.types import MapType, StringType

    from spark_ingest.functions import json_payload

    rows = frame(spark, [b"[1,2]", b'{"a":"b"}', b'{"a.b": 1, "extra": [1]}', b"{}"])
    lists = rows.select(json_payload("payload", "array<int>").alias("body")).collect()
    assert lists[0].body.value == [1, 2]
    maps = rows.select(json_payload("payload", MapType(StringType(), StringType())).alias("body")).collect()
    assert maps[1].body.value == {"a": "b"}
    dotted = rows.select(json_payload("payload", "`a.b` int").alias("body")).collect()
    assert (dotted[2].body.value["a.b"], dotted[2].body.reason) == (1, None)
    assert (dotted[3].body.value["a.b"], dotted[3].body.reason) == (None, None), "an empty object is one"


def test_levels_of_topics(spark: Any) -> None:
    from spark_ingest.functions import topic_level

    rows = spark.createDataFrame([("plant/press-4/temperature",), ("a",), ("/x/",), (None,)], "topic string")
    found = rows.select(*(topic_level("topic", n).alias(f"l{n}") for n in (0, 1, 2, 3, -1, -2, -4))).collect()
    assert [tuple(row) for row in found] == [
        ("plant", "press-4", "temperature", None, "temperature", "press-4", None),
        ("a", None, None, None, "a", None, None),
        ("", "x", "", None, "", "x", None),
        (None,) * 7,
    ]
