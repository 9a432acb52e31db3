"""The content of a batch: what goes in comes out, columns lie where `layout` says, and no bytes make it loop or lie."""

from __future__ import annotations

import array
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadFrame, OurFault
from keys.message import PADDED, SEALED, Inner
from keys.records import (
    EXPIRY,
    HAS_EXTRAS,
    NUMBER,
    PROPERTIES,
    RETAIN,
    TOMBSTONE,
    Extras,
    Records,
    encode,
    layout,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
EXTRAS = st.builds(
    Extras,
    st.none() | st.integers(0, 2**32 - 1),
    st.tuples(st.none() | TEXT, st.none() | TEXT, st.none() | st.binary(max_size=8), st.none() | st.integers(0, 1)),
    st.none() | st.integers(0, 2**63),
    st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
)
RECORD = st.tuples(
    st.sampled_from([0, 1, 2, RETAIN, RETAIN | 1, RETAIN | 2 | TOMBSTONE]),
    st.integers(0, 2**62),
    st.sampled_from([b"a", b"a/b", b"\xff", b"c" * 100]),
    EXTRAS,
    st.binary(max_size=20),
)


def content_of(rows: list[tuple[int, int, bytes, Extras, bytes]]) -> bytes:
    flags, times, topics, extras, payloads = zip(*rows, strict=True)
    return encode(bytes(flags), times, topics, [extra.encode() for extra in extras], payloads)


def small() -> bytes:
    return content_of(
        [(1, 5, b"a/b", Extras(), b"one"), (2, 6, b"a", Extras(expiry_s=9), b""), (0, 7, b"a/b", Extras(), b"x")]
    )


@given(st.lists(RECORD, min_size=1, max_size=12))
def test_what_goes_in_comes_out(rows: list[tuple[int, int, bytes, Extras, bytes]]) -> None:
    records = Records.decode(content_of(rows))
    assert len(records) == len(rows)
    assert records.payloads() == [row[4] for row in rows]
    for at, (flags, time_ms, topic, extras, payload) in enumerate(rows):
        assert records.flags[at] & ~HAS_EXTRAS == flags
        assert (records.times[at], records.topics[records.indexes[at]]) == (time_ms, topic)
        assert (records.extras(at), records.payload(at)) == (extras, payload)


def test_columns_lie_where_the_layout_says_each_at_a_multiple_of_8() -> None:
    content = small()
    where = layout(3, 2, 4, len(Extras(expiry_s=9).encode()), 4)
    assert all(start % 8 == 0 for start in where)
    assert where.end == len(content)
    assert sys.byteorder == "little"
    times = array.array("q", content[where.times : where.times + 24])
    assert list(times) == [5, 6, 7]
    assert content[where.topics : where.topics + 4] == b"a/ba"
    assert content[where.payloads : where.payloads + 4] == b"onex"


def test_a_bad_record_fails_alone() -> None:
    rows = [(1, 5, b"\xff", Extras(), b"one"), (1, 6, b"a", Extras(), b"two")]
    records = Records.decode(content_of(rows))
    with pytest.raises(BadFrame):
        records.topic(0)
    assert records.topic(1) == "a"
    broken = Records.decode(encode(b"\1\1", [5, 6], [b"a", b"a"], [b"\x80", b""], [b"", b"two"]))
    with pytest.raises(BadFrame):
        broken.extras(0)
    assert broken.payload(1) == b"two"


def test_every_single_changed_byte_of_the_structure_is_noticed_or_is_another_content() -> None:
    content = small()
    for at in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            try:
                records = Records.decode(bytes(changed))
            except BadFrame:
                continue
            rows = range(len(records))
            again = encode(
                records.flags,
                records.times,
                [records.topics[records.indexes[i]] for i in rows],
                [records.extras_bytes(i) for i in rows],
                records.payloads(),
            )
            same_order = [*dict.fromkeys(records.indexes)] == [*range(len(records.topics))]
            assert again == bytes(changed) or not same_order


@settings(max_examples=300)
@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: small()[:40] + tail))
def test_no_bytes_are_read_as_more_than_they_hold(data: bytes) -> None:
    try:
        records = Records.decode(data)
    except BadFrame:
        return
    assert sum(map(len, records.payloads())) <= len(data)


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_extras_have_one_encoding(data: bytes) -> None:
    try:
        extras = Extras.decode(data)
    except BadFrame:
        return
    assert extras.encode() == data


@pytest.mark.parametrize(
    "faults",
    [
        (b"\3", [1], [b"a"], [b""], [b""]),
        (bytes([TOMBSTONE]), [1], [b"a"], [b""], [b""]),
        (b"\1", [1], [b""], [b""], [b""]),
        (b"\1", [1, 2], [b"a"], [b""], [b""]),
        (b"\1", [2**63], [b"a"], [b""], [b""]),
        (b"", [], [], [], []),
        (bytes(1025), [1] * 1025, [b"a"] * 1025, [b""] * 1025, [b""] * 1025),
    ],
)
def test_what_no_batch_can_hold_is_our_fault(
    faults: tuple[bytes, list[int], list[bytes], list[bytes], list[bytes]],
) -> None:
    with pytest.raises(OurFault):
        encode(*faults)


def test_the_content_is_that_of_the_vectors() -> None:
    vectors = json.loads((Path(__file__).parent.parent / "vectors" / "batches.json").read_text())
    assert small().hex() == vectors["content"]


def test_each_sealed_property_has_flags_of_its_own_alone_and_in_batches() -> None:
    alone, batched = [each.inner_flag for each in SEALED], [each.record_flag for each in SEALED]
    assert len({*alone, PADDED}) == len(SEALED) + 1
    assert len({*batched, EXPIRY, NUMBER, PROPERTIES}) == len(SEALED) + 3
    assert all(flag.bit_count() == 1 for flag in (*alone, *batched))
    assert {each.name for each in SEALED} <= Inner.__dataclass_fields__.keys()


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "provenance": "VeilMQ protocol, our own: printed by `python -m tests.keys.test_records` from the fixed "
                "example of that file",
                "content": small().hex(),
            },
            indent=1,
        )
    )
