"""MessagePack decoded: vectors of its specification, round trips, and whatever else somebody sends."""

from __future__ import annotations

import json
from typing import Any

import msgpack
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


@given(st.binary(max_size=64))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_json_or_a_reason(payload: bytes) -> None:
    try:
        json.loads(messagepack_to_json(payload))
    except PayloadError as error:
        assert len(str(error)) < 60  # noqa: PT017
