"""Sparkplug B payloads: the outer protobuf message and its metrics, as plain values.

The message is described here by its field numbers (Sparkplug specification 3.0, "Payloads"); data sets and templates
stay encoded, so that nothing nests. Data messages name metrics by alias only: join them with the birth message. Signed
numbers travel as unsigned ones: where the type is told, as births do, they get their sign back.

Sizes and numbers of metrics are bounded, and whatever is wrong is a single short reason without a word of the payload.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from spark_ingest.payloads.messagepack import NOT_UTF8, PAYLOAD_BYTES_MAX, PayloadError

METRICS_MAX = 10_000
"""Of one payload; an empty one takes two bytes on the wire and an object here."""
METRIC_BYTES, METRICS_BARE = 6, 100
"""A metric with a name or an alias and a value takes so many bytes at least, and some 60 as columns; of a payload with
more metrics than METRICS_BARE the average must."""
TIME_MS_MAX = 253_402_300_799_999
"""End of the year 9999."""
LONG_MAX = (1 << 63) - 1

TYPES = (
    "Unknown", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float", "Double", "Boolean",
    "String", "DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template", "PropertySet", "PropertySetList",
    "Int8Array", "Int16Array", "Int32Array", "Int64Array", "UInt8Array", "UInt16Array", "UInt32Array", "UInt64Array",
    "FloatArray", "DoubleArray", "BooleanArray", "StringArray", "DateTimeArray",
)  # fmt: skip
"""By number of the data type."""
_SIGNED_BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
_VALUES = (
    ("int_value", 10, "UINT32"), ("long_value", 11, "UINT64"), ("float_value", 12, "FLOAT"),
    ("double_value", 13, "DOUBLE"), ("boolean_value", 14, "BOOL"), ("string_value", 15, "STRING"),
    ("bytes_value", 16, "BYTES"), ("dataset_value", 17, "BYTES"), ("template_value", 18, "BYTES"),
    ("extension_value", 19, "BYTES"),
)  # fmt: skip
_TEXTS = ("name", "uuid", "string_value")
VALUE_COLUMNS = ("long_value", "double_value", "boolean_value", "string_value", "bytes_value")
_METRIC = (
    ("name", 1, "STRING"), ("alias", 2, "UINT64"), ("timestamp", 3, "UINT64"), ("datatype", 4, "UINT32"),
    ("is_historical", 5, "BOOL"), ("is_transient", 6, "BOOL"), ("is_null", 7, "BOOL"),
)  # fmt: skip
_PAYLOAD = (("timestamp", 1, "UINT64"), ("seq", 3, "UINT64"), ("uuid", 4, "STRING"), ("body", 5, "BYTES"))


def _message_class() -> type[message.Message]:
    file = descriptor_pb2.FileDescriptorProto(name="veilmq/sparkplug.proto", package="veilmq", syntax="proto2")
    field = descriptor_pb2.FieldDescriptorProto
    payload = file.message_type.add(name="SparkplugPayload")
    metric = payload.nested_type.add(name="Metric")
    metric.oneof_decl.add(name="value")

    def add(to: Any, name: str, number: int, kind: str, **more: Any) -> None:
        label = more.pop("label", field.LABEL_OPTIONAL)
        to.field.add(name=name, number=number, type=getattr(field, f"TYPE_{kind}"), label=label, **more)

    for name, number, kind in _METRIC:
        add(metric, name, number, kind)
    for name, number, kind in _VALUES:
        add(metric, name, number, kind, oneof_index=0)
    for name, number, kind in _PAYLOAD:
        add(payload, name, number, kind)
    add(payload, "metrics", 2, "MESSAGE", label=field.LABEL_REPEATED, type_name=".veilmq.SparkplugPayload.Metric")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("veilmq.SparkplugPayload")
    made: type[message.Message] = message_factory.GetMessageClass(found)
    return made


SparkplugPayload: Any = _message_class()
"""Protobuf's class for the message: also what writes one."""


def decode_sparkplug(payload: bytes) -> dict[str, Any]:
    """timestamp (UNIX microseconds), seq, uuid, body and metrics; what is absent is None. Raises PayloadError."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise PayloadError(f"larger than {PAYLOAD_BYTES_MAX} bytes")
    try:
        found = SparkplugPayload.FromString(payload)
        if len(found.metrics) > METRICS_MAX:
            raise PayloadError(f"more than {METRICS_MAX} metrics")
        if len(found.metrics) > max(METRICS_BARE, len(payload) // METRIC_BYTES):
            raise PayloadError("metrics without a name or a value")
        return {
            "timestamp": _time_us(_told(found, "timestamp")),
            "seq": _long(_told(found, "seq")),
            "uuid": _told(found, "uuid"),
            "metrics": [_metric(each) for each in found.metrics],
            "body": _told(found, "body"),
        }
    except message.DecodeError:
        raise PayloadError("malformed") from None
    except UnicodeDecodeError:
        raise PayloadError(NOT_UTF8) from None


def _metric(found: Any) -> dict[str, Any]:
    number = _told(found, "datatype")
    kind = None if number is None else TYPES[number] if number < len(TYPES) else f"type {number}"
    alias = _told(found, "alias")
    return {
        "name": _told(found, "name"),
        # An alias is a name: one beyond what a long holds is shown as the negative number of the same bits.
        "alias": alias if alias is None or alias <= LONG_MAX else alias - (1 << 64),
        "type": kind,
        "timestamp": _time_us(_told(found, "timestamp")),
        "is_historical": found.is_historical,
        "is_transient": found.is_transient,
        "is_null": found.is_null,
        **_value(found, kind),
    }


def _value(found: Any, kind: str | None) -> dict[str, Any]:
    """The column of the value's kind, the others None. Whole numbers stand in two, as long and as double."""
    value: dict[str, Any] = dict.fromkeys(VALUE_COLUMNS)
    which = found.WhichOneof("value")
    if which is None or found.is_null:
        return value
    told = _told(found, which)
    if which in ("int_value", "long_value"):
        bits = _SIGNED_BITS.get(kind or "")
        if bits is not None:
            told &= (1 << bits) - 1
            told -= (told >> (bits - 1)) << bits
        value |= {"long_value": _long(told), "double_value": float(told)}
    elif which in ("float_value", "double_value"):
        value["double_value"] = told
    else:
        value[which if which in value else "bytes_value"] = told
    return value


def _told(found: Any, name: str) -> Any:
    if not found.HasField(name):
        return None
    value = getattr(found, name)
    if name in _TEXTS and isinstance(value, bytes):
        raise PayloadError(NOT_UTF8)  # protobuf's C library hands back what does not decode as it came
    return value


def _long(value: int | None) -> int | None:
    return value if value is not None and value <= LONG_MAX else None


def _time_us(value: int | None) -> int | None:
    return value * 1000 if value is not None and value <= TIME_MS_MAX else None
