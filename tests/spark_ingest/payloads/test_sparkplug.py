"""Sparkplug B decoded: by its field numbers, round trips, and payloads that swell."""

from __future__ import annotations

import base64
import math
import tracemalloc
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ingest.payloads.messagepack import (
    PAYLOAD_BYTES_MAX,
    PayloadError,
)
from spark_ingest.payloads.sparkplug import METRIC_BYTES, METRICS_BARE, METRICS_MAX, SparkplugPayload, decode_sparkplug

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


@pytest.mark.long
def test_a_batch_of_payloads_that_swell_is_decoded_bit_by_bit() -> None:
    pytest.importorskip("pyspark")
    from spark_ingest.functions import _sparkplug

    payload = SMALLEST * METRICS_MAX
    tracemalloc.start()
    try:
        found = _sparkplug(pa.array([payload] * 10 + [None, b"x"], pa.binary()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    metrics = pc.struct_field(found[:10], ["value", "metrics"])
    assert pc.list_value_length(metrics).to_pylist() == [METRICS_MAX] * 10
    assert found[10].as_py() == {"value": None, "reason": None}
    assert found[11].as_py() == {"value": None, "reason": "sparkplug: malformed"}
    assert peak < 40 << 20


@given(st.binary(max_size=64) | st.builds(lambda a, b: a + BIRTH[len(a) :] + b, st.binary(max_size=8), st.binary()))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_a_payload_or_a_reason(payload: bytes) -> None:
    try:
        decode_sparkplug(payload)
    except PayloadError as error:
        assert str(error) in ("malformed", "text that is not UTF-8")  # noqa: PT017
