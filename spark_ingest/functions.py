"""Columns of Spark from payloads (JSON, MessagePack, CBOR, SenML, Sparkplug B), levels of topics, ids of publishers.

    from spark_ingest.functions import json_payload, messagepack, sparkplug, topic_level
    body = json_payload("payload", "sensor string, value double")
    rows.select(topic_level("topic", 1).alias("device"), body.alias("body")).where("body.reason is null")

`json_payload`, `messagepack`, `cbor`, `senml` and `sparkplug` give a struct of `value` and `reason`: a payload that
cannot be decoded has no value and a reason, a null payload neither, and no payload ends a query. All but the
first run in Python workers, with Arrow and without pandas; `veilmq[spark]` must be
installed there. Not here: decoding itself (`payloads`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import DataType, StringType, StructField, StructType

from spark_ingest.payloads import (
    NOT_UTF8,
    PAYLOAD_BYTES_MAX,
    PayloadError,
    cbor_to_json,
    decode_senml,
    decode_sparkplug,
    messagepack_to_json,
)

f: Any = functions  # its annotations know no function that takes Arrow arrays by type hints
ColumnOrName: TypeAlias = Any
AS_JSON = "json"
PUBLISHER_BYTES = 16
_MALFORMED = "_veilmq_malformed"

DECODED_BYTES = 256 << 10
"""Of payloads whose values are Python objects at a time, about: an empty metric is 2 bytes, and 600 as an object."""

SPARKPLUG_DDL = (
    "timestamp timestamp, seq bigint, uuid string, metrics array<struct<name: string, alias: bigint, type: string, "
    "timestamp: timestamp, is_historical: boolean, is_transient: boolean, is_null: boolean, long_value: bigint, "
    "double_value: double, boolean_value: boolean, string_value: string, bytes_value: binary>>, body binary"
)
"""What `sparkplug` gives as `value`."""
SENML_DDL = (
    "name: string, unit: string, time: timestamp, is_relative: boolean, value: double, string_value: string, "
    "boolean_value: boolean, data_value: binary, sum: double, update_s: double"
)
"""A record that `senml` gives."""
_TIME = pa.timestamp("us", tz="UTC")
_SENML = pa.list_(
    pa.field(
        "element",
        pa.struct(
            {
                "name": pa.string(), "unit": pa.string(), "time": _TIME, "is_relative": pa.bool_(),
                "value": pa.float64(), "string_value": pa.string(), "boolean_value": pa.bool_(),
                "data_value": pa.binary(), "sum": pa.float64(), "update_s": pa.float64(),
            }.items()
        ),
    )
)  # fmt: skip
_METRIC = pa.struct(
    {
        "name": pa.string(), "alias": pa.int64(), "type": pa.string(), "timestamp": _TIME,
        "is_historical": pa.bool_(), "is_transient": pa.bool_(), "is_null": pa.bool_(), "long_value": pa.int64(),
        "double_value": pa.float64(), "boolean_value": pa.bool_(), "string_value": pa.string(),
        "bytes_value": pa.binary(),
    }.items()
)  # fmt: skip
_SPARKPLUG = pa.struct(
    {"timestamp": _TIME, "seq": pa.int64(), "uuid": pa.string(), "metrics": pa.list_(pa.field("element", _METRIC)),
     "body": pa.binary()}.items()
)  # fmt: skip


def topic_level(topic: ColumnOrName, level: int) -> Any:
    """A level of a topic, from 0, or from the end with -1, -2, ...; null where there is none."""
    levels = f.split(_column(topic), "/")
    return f.get(levels, f.lit(level) if level >= 0 else f.size(levels) + level)


def publisher_text(publisher_id: ColumnOrName) -> Any:
    """Column `publisher_id` (16 bytes) as text, as column `publisher` has it."""
    return f.lower(f.hex(_column(publisher_id)))


def publisher_bytes(publisher: ColumnOrName) -> Any:
    """The inverse, to compare `publisher_id` with and to join on; null for what is no such text."""
    text = _column(publisher)
    return f.when(f.length(text) == 2 * PUBLISHER_BYTES, f.unhex(text))


def json_payload(payload: ColumnOrName, schema: str | DataType) -> Any:
    """Returns a JSON payload as struct<value: SCHEMA, reason: string>. `schema`: as for `from_json`, fields or a type.

    A field that is missing is null. A field the schema does not name is left out. A field of another type makes the
    payload malformed. A payload holds one value (RFC 8259, section 2): several values or bytes behind one are a
    reason.
    """
    column = _column(payload)
    text = f.try_validate_utf8(column.cast("string"))
    whole = f.when(f.length(column) <= PAYLOAD_BYTES_MAX, text)
    why = f.when(f.length(column) > PAYLOAD_BYTES_MAX, f"json: larger than {PAYLOAD_BYTES_MAX} bytes").when(
        text.isNull() & column.isNotNull(), f"json: {NOT_UTF8}"
    )
    first = by_schema(whole, why, schema, "json")
    many = first["value"].isNotNull() & ~_is_one_value(whole)
    return f.struct(
        f.when(~many, first["value"]).alias("value"),
        f.when(many, "json: more than one value, or bytes behind it").otherwise(first["reason"]).alias("reason"),
    )


def messagepack(payload: ColumnOrName, schema: str | DataType = AS_JSON) -> Any:
    """A MessagePack payload as struct<value: SCHEMA, reason: string>; with schema "json" the value is JSON text.

    Binary, times and what else JSON lacks stand in it as `messagepack` says, which a schema with `binary` and
    `timestamp` fields reads back.
    """
    made = f.arrow_udf(_messagepack, "value string, reason string")(_column(payload))
    return made if schema == AS_JSON else by_schema(made["value"], made["reason"], schema, "messagepack")


def cbor(payload: ColumnOrName, schema: str | DataType = AS_JSON) -> Any:
    """Returns a CBOR payload (RFC 8949) as `messagepack` does; with schema "json" the value is JSON text."""
    made = f.arrow_udf(_cbor, "value string, reason string")(_column(payload))
    return made if schema == AS_JSON else by_schema(made["value"], made["reason"], schema, "cbor")


def senml(payload: ColumnOrName) -> Any:
    """Returns a SenML pack (RFC 8428), JSON or CBOR, as struct<value: array of SENML_DDL, reason: string>.

    Records are resolved: names, units and values stand alone. A relative time counts from the time of publishing:
    add `published_at` where `is_relative`.
    """
    return f.arrow_udf(_senml, f"value array<struct<{SENML_DDL}>>, reason string")(_column(payload))


def sparkplug(payload: ColumnOrName) -> Any:
    """A Sparkplug B payload as struct<value: SPARKPLUG_DDL, reason: string>."""
    return f.arrow_udf(_sparkplug, f"value struct<{SPARKPLUG_DDL}>, reason string")(_column(payload))


def _column(name: ColumnOrName) -> Any:
    return f.col(name) if isinstance(name, str) else name


def _is_one_value(text: Any) -> Any:
    """Returns whether JSON text is one value, with nothing but whitespace around it; null text is not.

    Spark reads the first value of a text and no further. So the text stands in brackets here, where other values make
    another count, and in an object before a field that has to be read. A text closes one of the two at most.
    """
    counted = f.size(f.from_json(f.concat(f.lit("["), text, f.lit("]")), "array<string>"))
    behind = f.from_json(f.concat(f.lit('{"value":'), text, f.lit(',"end":true}')), "end boolean")["end"]
    return f.coalesce((counted == 1) & behind, f.lit(False))


def by_schema(text: Any, why: Any, schema: str | DataType, form: str) -> Any:
    """Returns JSON text by a schema, as struct<value, reason>. `why`: a column, null or why there is no text."""
    kind: Any = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if isinstance(kind, StructType):
        marked = StructType([*kind.fields, StructField(_MALFORMED, StringType())])
        parsed = f.from_json(text, marked, {"columnNameOfCorruptRecord": _MALFORMED})
        whole = f.struct(*(parsed.getField(name).alias(name) for name in kind.fieldNames()))
        value = f.when(parsed.isNotNull() & parsed.getField(_MALFORMED).isNull(), whole)
    else:
        value = f.from_json(text, kind)
    reason = f.when(why.isNotNull(), why).when(
        text.isNotNull() & value.isNull(), f"{form}: malformed, or not of the schema"
    )
    return f.struct(value.alias("value"), reason.alias("reason"))


def _cbor(payloads: pa.Array) -> pa.Array:
    return _each(payloads, cbor_to_json, pa.string(), "cbor")


def _senml(payloads: pa.Array) -> pa.Array:
    return _each(payloads, _senml_records, _SENML, "senml")


def _senml_records(payload: bytes) -> list[dict[str, Any]]:
    return [{**each, "time": each["time_us"]} for each in decode_senml(payload)]


def _messagepack(payloads: pa.Array) -> pa.Array:
    return _each(payloads, messagepack_to_json, pa.string(), "messagepack")


def _sparkplug(payloads: pa.Array) -> pa.Array:
    return _each(payloads, decode_sparkplug, _SPARKPLUG, "sparkplug")


def _each(payloads: pa.Array, decode: Callable[[bytes], Any], kind: pa.DataType, form: str) -> pa.Array:
    """Values and reasons of a batch."""
    parts = [pa.array([], _decoded(kind))]
    rows: list[dict[str, Any]] = []
    size = 0
    for payload in payloads.to_pylist():
        value = reason = None
        if payload is not None:
            try:
                value = decode(payload)
            except PayloadError as error:
                reason = f"{form}: {error}"
            size += len(payload)
        rows.append({"value": value, "reason": reason})
        if size >= DECODED_BYTES:
            parts.append(pa.array(rows, _decoded(kind)))
            rows, size = [], 0
    parts.append(pa.array(rows, _decoded(kind)))
    return pa.concat_arrays(parts)


def _decoded(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("value", kind), ("reason", pa.string())])
