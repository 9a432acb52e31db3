"""CBOR payloads as JSON text: values of RFC 8949's appendix, and what harms is a short reason."""

from __future__ import annotations

import json
import time

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.payloads.cbor import ODD_KEYS_BYTES_MAX, cbor_to_json
from spark_ingest.payloads.messagepack import PayloadError

VECTORS = [
    ("00", "0"), ("1bffffffffffffffff", '"18446744073709551615"'), ("20", "-1"), ("f93c00", "1.0"),
    ("f97c00", '"Infinity"'),
    ("f97e00", '"NaN"'), ("f4", "false"), ("f6", "null"), ("f7", "null"), ("4401020304", '"AQIDBA=="'),
    ("6161", '"a"'), ("83010203", "[1,2,3]"), ("a201020304", '{"1":2,"3":4}'),
    ("a26161016162820203", '{"a":1,"b":[2,3]}'), ("c11a514b67b0", '"2013-03-21T20:04:00+00:00"'),
    ("9f018202039f0405ffff", "[1,[2,3],[4,5]]"),
]  # fmt: skip
"""RFC 8949, appendix A."""


@pytest.mark.parametrize(("given_hex", "wanted"), VECTORS)
def test_values_of_the_rfc(given_hex: str, wanted: str) -> None:
    assert cbor_to_json(bytes.fromhex(given_hex)) == wanted


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"\x01\x02", b"\x62\xc3\x28", b"\x9a\xff\xff\xff\xff", b"\x81" * 100, b"\xd8\x1d\x00",
     b"\xc5\x82\x1a\x7f\xff\xff\xff\x01", b"\xc2\x5a\x00\x0f\xff\xff" + b"\xff" * 0xFFFFF,
     b"\xbf\x61a\x01\x9f\xff\xff"],
)  # fmt: skip
def test_what_harms_or_is_no_value_is_a_short_reason(payload: bytes) -> None:
    began = time.process_time()
    with pytest.raises(PayloadError) as told:
        cbor_to_json(payload)
    assert len(str(told.value)) < 100
    assert time.process_time() - began < 5


def test_keys_that_may_fall_together_are_few() -> None:
    small, large = (dict.fromkeys(range(count), 0) for count in (100, ODD_KEYS_BYTES_MAX))
    assert len(json.loads(cbor_to_json(cbor2.dumps(small)))) == 100
    with pytest.raises(PayloadError):
        cbor_to_json(cbor2.dumps(large))
    text = {str(number): 0 for number in range(10_000)}
    assert json.loads(cbor_to_json(cbor2.dumps(text))) == text


@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_a_reason(payload: bytes) -> None:
    try:
        json.loads(cbor_to_json(payload))
    except PayloadError:
        return
