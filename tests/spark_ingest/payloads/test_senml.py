"""SenML packs, of JSON and of CBOR: the examples of RFC 8428 resolved, and broken packs."""

from __future__ import annotations

import json
import math
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.functions import _senml
from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.senml import decode_senml

URN = "urn:dev:ow:10e2073a0108006"


def brief(payload: bytes) -> list[tuple[Any, ...]]:
    return [(each["name"], each["unit"], each["time_us"] / 1e6, each["value"]) for each in decode_senml(payload)]


def test_multiple_data_points_of_the_rfc() -> None:
    """RFC 8428, section 5.1.2, and its pack in CBOR (section 6)."""
    pack = (
        b'[{"bn":"urn:dev:ow:10e2073a0108006:","bt":1.276020076001e+09,"bu":"A","bver":10,"n":"voltage","u":"V",'
        b'"v":120.1},{"n":"current","t":-5,"v":1.2},{"n":"current","t":-4,"v":1.3}]'
    )
    wanted = [
        (f"{URN}:voltage", "V", 1276020076.001, 120.1), (f"{URN}:current", "A", 1276020071.001, 1.2),
        (f"{URN}:current", "A", 1276020072.001, 1.3),
    ]  # fmt: skip
    assert brief(pack) == wanted
    packed = [
        {-2: f"{URN}:", -3: 1276020076.001, -4: "A", -1: 10, 0: "voltage", 1: "V", 2: 120.1},
        {0: "current", 6: -5, 2: 1.2}, {0: "current", 6: -4, 2: 1.3},
    ]  # fmt: skip
    assert brief(cbor2.dumps(packed)) == wanted


def test_kinds_of_values_sums_and_relative_times() -> None:
    """RFC 8428, sections 4.5.3 and 5.1.5."""
    pack = (
        b' [{"bn":"urn:dev:ow:10e2073a01080063:","bs":10,"n":"a","vs":"Machine Room"},{"n":"b","vb":false,"t":-10},'
        b'{"n":"c","vd":"aGkgCg"},{"n":"d","s":2.5,"ut":60}]'
    )
    rows = decode_senml(pack)
    assert [(r["string_value"], r["boolean_value"], r["data_value"], r["sum"], r["update_s"]) for r in rows] == [
        ("Machine Room", None, None, 10.0, None), (None, False, None, 10.0, None), (None, None, b"hi \n", 10.0, None),
        (None, None, None, 12.5, 60.0),
    ]  # fmt: skip
    assert [(r["is_relative"], r["time_us"]) for r in rows] == [(True, 0), (True, -10_000_000), (True, 0), (True, 0)]


@pytest.mark.parametrize(
    ("pack", "why"),
    [(b"[]", "no list of records"), (b'{"n":"a","v":1}', "malformed"), (b'[{"n":"a"}]', "without a value"),
     (b'[{"n":"a","v":1,"vs":"x"}]', "several values"), (b'[{"v":1}]', "name"), (b'[{"n":"a b","v":1}]', "name"),
     (b'[{"n":"a","v":"1"}]', "v is no number"), (b'[{"n":"a","v":true}]', "v is no number"),
     (b'[{"n":"a","v":1,"x_":2}]', "understood"), (b'[{"bver":11,"n":"a","v":1}]', "version"),
     (b'[{"n":"a","vd":"*"}]', "base64"), (b'[{"n":"a","v":1,"t":1e300}]', "calendar"), (b"[\xff]", "UTF-8"),
     (b"[1]", "no list of records"), (b'[{"n":"a","v":1' + b"0" * 400 + b"}]", "v is no number"),
     (b'[{"bn":"a","bv":1e308,"v":1e308}]', "v with its base"),
     (b'[{"bn":"a","bs":1e308,"s":1e308}]', "s with its base"),
     (b'[{"n":"a","vs":"\\ud800"}]', "UTF-8"), (b'[{"n":"a","v":1,"u":"\\udfff"}]', "UTF-8"),
     ('[{"n":"a","vd":"\u00e4"}]'.encode(), "base64")],
)  # fmt: skip
def test_a_broken_pack_is_a_reason(pack: bytes, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        decode_senml(pack)


NUMBERS = st.integers(-(10**400), 10**400) | st.sampled_from([10**308, 1e308, -1e308, 1e306, 0.5])
TEXTS = st.text(st.characters(), max_size=3) | st.sampled_from(["a", "aGk=", "\ud800"])
FIELDS = st.sampled_from(["bn", "bt", "bu", "bv", "bs", "n", "u", "v", "vs", "s", "t", "ut", "vd"])


@given(st.lists(st.dictionaries(FIELDS, NUMBERS | TEXTS, min_size=1, max_size=5), min_size=1, max_size=3))
def test_any_pack_is_a_column_of_finite_numbers_or_a_reason(pack: list[dict[str, Any]]) -> None:
    """One payload that Arrow refuses would end the query of all payloads."""
    (row,) = _senml(pa.array([json.dumps(pack).encode()], pa.binary())).to_pylist()
    for each in row["value"] or ():
        assert all(math.isfinite(each[name]) for name in ("value", "sum", "update_s") if each[name] is not None)
    assert row["value"] is not None or row["reason"]


@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda each: b"[" + each))
def test_any_bytes_are_records_or_a_reason(payload: bytes) -> None:
    try:
        assert decode_senml(payload)
    except PayloadError:
        return
