"""Payloads of devices decoded: vectors of the specifications, round trips, and whatever else somebody sends."""

from __future__ import annotations

import base64
import json
import math
import tracemalloc
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ingest.payloads.messagepack import (
    NESTING_MAX,
    PAYLOAD_BYTES_MAX,
    VALUES_MAX,
    PayloadError,
    messagepack_to_json,
)
from spark_ingest.payloads.sparkplug import METRIC_BYTES, METRICS_BARE, METRICS_MAX, SparkplugPayload, decode_sparkplug

# ------------------------------------------------------------------------------------------- MessagePack


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        # The example of msgpack.org, and one value of each format of the specification (github.com/msgpack/msgpack).
        ("82a7636f6d70616374c3a6736368656d6100", {"compact": True, "schema": 0}),
        ("c0", None), ("c2", False), ("7f", 127), ("e0", -32), ("ccff", 255), ("cdffff", 65535),
        ("ceffffffff", 4294967295), ("cfffffffffffffffff", 18446744073709551615), ("d080", -128),
        ("d18000", -32768), ("d28000000000"[:10], -2147483648), ("d38000000000000000", -9223372036854775808),
        ("ca3f800000", 1.0), ("cb3ff8000000000000", 1.5), ("a3e282ac", "€"), ("d90161", "a"), ("da000161", "a"),
        ("db0000000161", "a"), ("c4020102", "AQI="), ("93010203", [1, 2, 3]), ("dc000101", [1]), ("80", {}),
        ("de0001a16101", {"a": 1}), ("df00000001a16101", {"a": 1}),
        # Extensions: timestamp 32, 64 and 96, and one of an application.
        ("d6ff00000001", "1970-01-01T00:00:01+00:00"),
        ("d7ff" + f"{(500_000_000 << 34) + 1:016x}", "1970-01-01T00:00:01.500000+00:00"),
        ("c70cff" + "00000000" + "ffffffffffffffff", "1969-12-31T23:59:59+00:00"),
        ("d4052a", {"ext": 5, "data": "Kg=="}),
        # What JSON lacks.
        ("ca7fc00000", "NaN"), ("ca7f800000", "Infinity"), ("caff800000", "-Infinity"),
        ("84010203a162c3a163cb3ff8000000000000a164", {"1": 2, "3": "b", "true": "c", "1.5": "d"}),
    ],
)  # fmt: skip
def test_messagepack_by_its_specification(frame: str, expected: Any) -> None:
    assert json.loads(messagepack_to_json(bytes.fromhex(frame))) == expected


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(plain)
@settings(max_examples=200, deadline=None)
def test_what_json_can_hold_comes_back_as_it_was(value: Any) -> None:
    assert json.loads(messagepack_to_json(msgpack.packb(value))) == value


@pytest.mark.parametrize(
    ("payload", "reason"),
    [(b"", "malformed"), (b"\x93\x01", "malformed"), (b"\xc0\xc0", "malformed"), (b"\xc1", "malformed"),
     (b"\xa1\xff", "UTF-8"), (b"\x91" * (NESTING_MAX + 1) + b"\xc0", "nested"), (b"\x91" * 100_000, "malformed"),
     (b"\xdd\xff\xff\xff\xff", "malformed"), (b"\xdb\xff\xff\xff\xff", "malformed"),
     (b"\xdd" + VALUES_MAX.to_bytes(4) + b"\xc0" * VALUES_MAX, "values"),
     (b"\xdf" + (VALUES_MAX // 2).to_bytes(4) + b"\xc0\xc0" * (VALUES_MAX // 2), "values"),
     (b"\xc0" * (PAYLOAD_BYTES_MAX + 1), "larger"), (b"\x81\x91\x01\x01", "key"), (b"\x81\xd4\x05\x2a\x01", "key"),
     (b"\xc7\x0c\xff\0\0\0\0\x7f" + b"\xff" * 7, "calendar"), (b"\xc7\x05\xff\0\0\0\0\0", "malformed")],
)  # fmt: skip
def test_hostile_messagepack_is_one_short_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(PayloadError, match=reason) as error:
        messagepack_to_json(payload)
    assert len(str(error.value)) < 60


@given(st.binary(max_size=64) | st.builds(lambda a, b: a + BIRTH[len(a) :] + b, st.binary(max_size=8), st.binary()))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_json_or_a_reason(payload: bytes) -> None:
    try:
        json.loads(messagepack_to_json(payload))
    except PayloadError as error:
        assert len(str(error)) < 60  # noqa: PT017
    try:
        decode_sparkplug(payload)
    except PayloadError as error:
        assert str(error) in ("malformed", "text that is not UTF-8")  # noqa: PT017


# -------------------------------------------------------------------------------------------- Sparkplug B

BIRTH = bytes.fromhex(
    # Written by hand after the field numbers of sparkplug_b.proto (Eclipse Tahu): timestamp 1 as varint, seq 3.
    "08e8071800"
    # metrics 2, 19 bytes: name 1 "temp", alias 2 = 7, timestamp 3 = 1000, datatype 4 = 3 (Int32), int_value 10 = -1.
    "1213" "0a0474656d70" "1007" "18e807" "2003" "50ffffffff0f"
    # uuid 4 "u", body 5 two bytes, and field 100, which nobody knows.
    "220175" "2a020102" "a2060178"
)  # fmt: skip


def test_sparkplug_by_its_field_numbers() -> None:
    found = decode_sparkplug(BIRTH)
    (metric,) = found.pop("metrics")
    assert found == {"timestamp": 1_000_000, "seq": 0, "uuid": "u", "body": b"\x01\x02"}
    assert metric == {
        "name": "temp", "alias": 7, "type": "Int32", "timestamp": 1_000_000, "is_historical": False,
        "is_transient": False, "is_null": False, "long_value": -1, "double_value": -1.0, "boolean_value": None,
        "string_value": None, "bytes_value": None,
    }  # fmt: skip


def metric_of(**fields: Any) -> dict[str, Any]:
    (found,) = decode_sparkplug(SparkplugPayload(metrics=[fields]).SerializeToString())["metrics"]
    return {name: value for name, value in found.items() if value is not None and value is not False}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"datatype": 1, "int_value": 0xFF}, {"type": "Int8", "long_value": -1, "double_value": -1.0}),
        ({"datatype": 1, "int_value": 0xFFFFFFFF}, {"type": "Int8", "long_value": -1, "double_value": -1.0}),
        ({"datatype": 2, "int_value": 0x7FFF}, {"type": "Int16", "long_value": 32767, "double_value": 32767.0}),
        ({"datatype": 7, "int_value": 1 << 31}, {"type": "UInt32", "long_value": 1 << 31, "double_value": 2.0**31}),
        ({"datatype": 4, "long_value": (1 << 64) - 2}, {"type": "Int64", "long_value": -2, "double_value": -2.0}),
        ({"datatype": 8, "long_value": 1 << 63}, {"type": "UInt64", "double_value": 2.0**63}),
        ({"alias": 3, "int_value": 5}, {"alias": 3, "long_value": 5, "double_value": 5.0}),
        ({"datatype": 9, "float_value": 0.5}, {"type": "Float", "double_value": 0.5}),
        ({"datatype": 11, "boolean_value": True}, {"type": "Boolean", "boolean_value": True}),
        ({"datatype": 12, "string_value": "x"}, {"type": "String", "string_value": "x"}),
        ({"datatype": 17, "bytes_value": b"\0"}, {"type": "Bytes", "bytes_value": b"\0"}),
        ({"datatype": 16, "dataset_value": b"\x08\x01"}, {"type": "DataSet", "bytes_value": b"\x08\x01"}),
        ({"datatype": 3, "is_null": True, "int_value": 4}, {"type": "Int32", "is_null": True}),
        ({"datatype": 99}, {"type": "type 99"}),
        ({"alias": (1 << 64) - 1}, {"alias": -1}),
        ({"timestamp": 1 << 63}, {}),
    ],
)  # fmt: skip
def test_a_metric_has_its_value_in_the_column_of_its_kind(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert metric_of(**fields) == expected


@given(
    st.lists(st.builds(
        dict, name=st.text(st.characters(exclude_categories=["Cs"]), max_size=8), alias=st.integers(0, (1 << 63) - 1),
        timestamp=st.integers(0, 253_402_300_799_999), datatype=st.just(10),
        double_value=st.floats(allow_nan=False), is_historical=st.booleans(),
    ), max_size=5),
    st.integers(0, 255),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_sparkplug_round_trips(metrics: list[dict[str, Any]], seq: int) -> None:
    found = decode_sparkplug(SparkplugPayload(seq=seq, timestamp=1, metrics=metrics).SerializeToString())
    assert found["seq"] == seq
    for given_, metric in zip(metrics, found["metrics"], strict=True):
        assert (metric["name"], metric["alias"], metric["type"]) == (given_["name"], given_["alias"], "Double")
        assert metric["timestamp"] == given_["timestamp"] * 1000
        assert metric["is_historical"] is given_["is_historical"]
        assert math.isclose(metric["double_value"], given_["double_value"], rel_tol=0)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [(b"\x0a\xff\xff\xff\xff\x0f", "malformed"), (b"\x12\x03\x0a\x01\xff", "UTF-8"), (b"\x08", "malformed"),
     (b"\x12\x00" * (METRICS_MAX + 1), "metrics"), (b"\0" * (PAYLOAD_BYTES_MAX + 1), "larger"),
     (b"\x0b" * 100_000, "malformed"), (b"{}", "malformed")],
)  # fmt: skip
def test_hostile_sparkplug_is_one_short_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(PayloadError, match=reason):
        decode_sparkplug(payload)


def test_an_empty_payload_has_no_metrics() -> None:
    assert decode_sparkplug(b"") == {"timestamp": None, "seq": None, "uuid": None, "metrics": [], "body": None}


def test_templates_do_not_nest() -> None:
    """A template may hold metrics with templates, and so on: encoded, its depth costs nothing."""
    inner = b""
    for _ in range(5_000):
        metric = SparkplugPayload.Metric(template_value=inner).SerializeToString()
        inner = b"\x12" + _varint(len(metric)) + metric
    (metric,) = decode_sparkplug(inner)["metrics"]
    assert len(metric["bytes_value"]) > 20_000
    assert base64.b64encode(metric["bytes_value"])


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


SMALLEST = b"\x12\x04\x10\x01\x70\x01"
"""A metric with an alias and a value."""


@pytest.mark.parametrize("many", [1, METRICS_BARE, METRICS_BARE + 1, METRICS_MAX])
@pytest.mark.parametrize("metric", [
    b"\x12\x00", b"\x12\x02\x10\x01", b"\x12\x02\x0a\x00", b"\x12\x02\x20\x1f", SMALLEST, b"\x12\x04\x10\x01\x20\x1f",
])  # fmt: skip
def test_a_payload_swells_by_a_bounded_factor(metric: bytes, many: int) -> None:
    """A worker has ten thousand rows in one piece of memory, and a metric has a dozen columns."""
    pytest.importorskip("pyspark")
    from spark_ingest.functions import _sparkplug

    payload = metric * many
    found = _sparkplug(pa.array([payload] * 3, pa.binary()))
    assert found.nbytes / 3 <= 12 * len(payload) + 64 * METRICS_BARE
    whole = len(metric) >= METRIC_BYTES or many <= METRICS_BARE
    assert (found[0]["reason"].as_py() is None) is whole


def test_a_batch_of_payloads_that_swell_is_decoded_bit_by_bit() -> None:
    pytest.importorskip("pyspark")
    from spark_ingest.functions import _sparkplug

    payload = SMALLEST * METRICS_MAX
    tracemalloc.start()
    try:
        found = _sparkplug(pa.array([payload] * 30 + [None, b"x"], pa.binary()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(each["value"]["metrics"]) for each in found[:30]] == [METRICS_MAX] * 30
    assert found[30].as_py() == {"value": None, "reason": None}
    assert found[31].as_py() == {"value": None, "reason": "sparkplug: malformed"}
    assert peak < 120 << 20
