"""The content of a batch: what goes in comes out, columns lie where `layout` says, and no bytes make it loop or lie."""

from __future__ import annotations

import array
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import records as columns
from keys.errors import BadFrame, OurFault
from keys.message import PROPERTIES_LIMIT, SEALED
from keys.records import (
    EXPIRY,
    FILL_MAX,
    HAS_EXTRAS,
    NO_EXTRAS,
    NUMBER,
    NUMBER_MAX,
    PROPERTIES,
    QOS,
    RECORDS_MAX,
    RETAIN,
    TOMBSTONE,
    Extras,
    Layout,
    Records,
    encode,
    fill,
    layout,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
EXTRAS = st.builds(
    Extras,
    st.none() | st.integers(0, 2**32 - 1),
    st.tuples(st.none() | TEXT, st.none() | TEXT, st.none() | st.binary(max_size=8), st.none() | st.integers(0, 1)),
    st.none() | st.integers(0, NUMBER_MAX),
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


def test_each_sealed_property_has_a_flag_of_its_own() -> None:
    flags = [each.flag for each in SEALED]
    assert len({*flags, EXPIRY, NUMBER, PROPERTIES}) == len(SEALED) + 3
    assert all(flag.bit_count() == 1 for flag in flags)


# ------------------------------------------------------------------------- the format, drawn a second time

GOOD: dict[str, Any] = {
    "flags": [1, 2], "times": [5, 6], "indexes": [0, 1], "topics": [b"a", b"b"], "extras": [b"", b""],
    "payloads": [b"one", b""],
}  # fmt: skip
NINE = Extras(expiry_s=9).encode()


def raw(
    flags: list[int],
    times: list[int],
    indexes: list[int],
    topics: list[bytes],
    extras: list[bytes],
    payloads: list[bytes],
    **head: int,
) -> bytes:
    """A content section by section, as the format is drawn, whatever is wrong with it. `head`: other fields of it."""
    count, sizes = len(flags), (sum(map(len, extras)), sum(map(len, payloads)))
    fields = {
        "version": 2, "zero": 0, "records": count, "topics": len(topics), "zeros": 0, "of_extras": sizes[0],
        "of_payloads": sizes[1],
    } | head  # fmt: skip
    sections = [
        struct.pack("<BBHHHII", *fields.values()),
        bytes(flags),
        struct.pack(f"<{count}q", *times),
        struct.pack(f"<{count}H", *indexes),
        struct.pack(f"<{count}I", *map(len, extras)),
        struct.pack(f"<{count}I", *map(len, payloads)),
        struct.pack(f"<{len(topics)}H", *map(len, topics)),
        b"".join(topics),
        b"".join(extras),
        b"".join(payloads),
    ]
    return b"".join(section + bytes(-len(section) % 8) for section in sections)


@pytest.mark.parametrize("count", [*range(1, 10), RECORDS_MAX])
def test_a_content_is_its_sections_one_after_the_other(count: int) -> None:
    names, numbers = [b"topic %d" % (place % 3) for place in range(count)], range(count)
    extras = [NINE if place % 4 == 3 else b"" for place in numbers]
    payloads = [b"x" * (place % 5) for place in numbers]
    drawn = raw(
        [1 | HAS_EXTRAS * bool(extra) for extra in extras], [*numbers], [place % 3 for place in numbers],
        [*dict.fromkeys(names)], extras, payloads,
    )  # fmt: skip
    assert encode(b"\1" * count, [*numbers], names, extras, payloads) == drawn
    assert Records.decode(drawn).payloads() == payloads


def test_where_each_section_lies() -> None:
    assert layout(1, 1, 1, 1, 1) == Layout(16, 24, 32, 40, 48, 56, 64, 72, 80, 88)
    assert layout(9, 5, 17, 0, 8) == Layout(16, 32, 104, 128, 168, 208, 224, 248, 248, 256)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another version": ({"version": 1}, "version 1"),
    "something in the second byte": ({"zero": 1}, "version"),
    "something between the numbers and the sizes": ({"zeros": 1}, "version"),
    "no record": ({name: [] for name in GOOD}, "0 records"),
    "no topic": ({"topics": []}, "on 0 topics"),
    "more topics than records": ({"topics": [b"a", b"b", b"c"]}, "on 3 topics"),
    "another sum of extras": ({"flags": [9, 2], "extras": [NINE, b""], "of_extras": 6}, "add up"),
    "another sum of payloads": ({"of_payloads": 4}, "add up"),
    "a record on no topic": ({"indexes": [0, 2]}, "without a topic"),
    "a record before 1970": ({"times": [5, -1]}, "before 1970"),
    "extras that are said and are not there": ({"flags": [9, 2]}, "cannot be"),
    "extras of another record": ({"flags": [9, 2], "extras": [b"", NINE]}, "cannot be"),
    "extras of nobody": ({"extras": [b"", NINE]}, "have none"),
    "one topic under two numbers": ({"topics": [b"a", b"a"]}, "twice"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_content_with_one_thing_wrong_is_refused(wrong: str) -> None:
    assert Records.decode(raw(**GOOD)).payloads() == [b"one", b""]
    changes, says = WRONG[wrong]
    with pytest.raises(BadFrame, match=says):
        Records.decode(raw(**GOOD | changes))


def test_a_content_is_as_long_as_its_sizes_say() -> None:
    content = raw(**GOOD)
    for size in range(len(content)):
        with pytest.raises(BadFrame):
            Records.decode(content[:size])
    for longer in (content + b"\0", content + bytes(12), content + bytes(FILL_MAX), content + bytes(7) + b"\1"):
        with pytest.raises(BadFrame, match="add up"):
            Records.decode(longer)


@pytest.mark.parametrize("multiple", [8, 64, 1000, FILL_MAX])
def test_a_filled_content_is_that_content_and_tells_a_multiple_alone(multiple: int) -> None:
    for size in range(130):
        content = raw(**GOOD | {"payloads": [b"x" * size, b"yz"]})
        filled = fill(content, multiple)
        assert len(filled) % multiple == 0
        assert 0 <= len(filled) - len(content) < multiple
        assert Records.decode(filled).payloads() == [b"x" * size, b"yz"]


@given(st.integers(0, FILL_MAX // 8 - 1), st.integers(0, 2**64))
def test_nothing_but_few_zeros_may_follow_a_content(words: int, at: int) -> None:
    content = raw(**GOOD)
    filled = bytearray(content + bytes(8 * words))
    assert Records.decode(bytes(filled)).payloads() == [b"one", b""]
    if words:
        filled[len(content) + at % (8 * words)] = 1
        with pytest.raises(BadFrame, match="add up"):
            Records.decode(bytes(filled))


def test_the_least_content_is_one_record_of_nothing() -> None:
    """Whether a topic may be empty is the bridge's business."""
    records = Records.decode(raw([0], [0], [0], [b""], [b""], [b""]))
    assert (records.topics, records.payloads(), len(records.data)) == ((b"",), [b""], 64)


def test_1024_records_are_read_and_one_more_is_not() -> None:
    many: dict[str, Any] = {
        "topics": [b"a"],
        "indexes": [0],
        "flags": [0],
        "times": [0],
        "extras": [b""],
        "payloads": [b""],
    }
    for count in (RECORDS_MAX, RECORDS_MAX + 1):
        content = raw(**{name: one if name == "topics" else one * count for name, one in many.items()})
        if count == RECORDS_MAX:
            assert len(Records.decode(content)) == count
        else:
            with pytest.raises(BadFrame, match="1025 records"):
                Records.decode(content)


def test_which_flags_a_record_may_have() -> None:
    """No third QoS, no tombstone that is not retained, nothing that is not defined."""
    read: list[int] = []
    written: list[int] = []
    said: list[str] = []
    for flag in range(256):
        extra = NINE if flag & HAS_EXTRAS else b""
        content = raw([flag], [0], [0], [b"a"], [extra], [b""])
        try:
            assert Records.decode(content).flags == bytes([flag])
            read.append(flag)
        except BadFrame as error:
            said.append(str(error))
        try:
            assert encode(bytes([flag]), [0], [b"a"], [extra], [b""]) == content, flag
            written.append(flag)
        except OurFault as error:
            said.append(str(error))
    may = [flag for flag in range(64) if flag & QOS != 3 and (not flag & TOMBSTONE or flag & RETAIN)]
    assert read == written == may
    assert all("flags" in each for each in said)


def test_who_has_extras_is_seen_by_its_extras_whatever_its_flags_said() -> None:
    for flags in (b"\x09\x01", b"\1\1", b"\x09\x09"):
        assert Records.decode(encode(flags, [1, 2], [b"a"] * 2, [b"", NINE], [b""] * 2)).flags == b"\x01\x09"
        assert Records.decode(encode(flags, [1, 2], [b"a"] * 2, [b"", b""], [b""] * 2)).flags == b"\1\1"


def test_what_one_record_says() -> None:
    records = Records.decode(small())
    assert [records.qos(at) for at in range(3)] == [1, 2, 0]
    assert [records.extras_bytes(at) for at in range(3)] == [b"", NINE, b""]
    assert records.extras(0) is NO_EXTRAS


def test_a_batch_is_no_longer_than_a_packet_and_a_topic_no_longer_than_mqtts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Records.decode(encode(b"\0", [0], [b"t" * 65_535], [b""], [b""])).topic(0) == "t" * 65_535
    with pytest.raises(OurFault, match="too long"):
        encode(b"\0", [0], [b"t" * 65_536], [b""], [b""])
    monkeypatch.setattr(columns, "PAYLOAD_LIMIT", 4)
    assert Records.decode(encode(b"\0\0", [0, 0], [b"a"] * 2, [b""] * 2, [b"12", b"34"])).payloads() == [b"12", b"34"]
    with pytest.raises(OurFault, match="longer than a packet"):
        encode(b"\0\0", [0, 0], [b"a"] * 2, [b""] * 2, [b"12", b"345"])


# --------------------------------------------------------------------------------------------------- extras

FULL = Extras(9, ("t/p", "r", b"\1\xff", 1), 7, (("a", "b"), ("c", "d")))
FULL_BYTES = b"".join((
    bytes([127]), (9).to_bytes(4, "little"), b"\3\0t/p", b"\1\0r", b"\2\0\1\xff", b"\1", (7).to_bytes(8, "little"),
    b"\2\0", b"\1\0a", b"\1\0b", b"\1\0c", b"\1\0d",
))  # fmt: skip


def test_extras_are_spelled_as_the_format_says() -> None:
    assert FULL.encode() == FULL_BYTES
    assert Extras.decode(FULL_BYTES) == FULL
    for size in range(1, len(FULL_BYTES)):
        with pytest.raises(BadFrame, match="cut short"):
            Extras.decode(FULL_BYTES[:size])
    with pytest.raises(BadFrame, match="behind"):
        Extras.decode(FULL_BYTES + b"\0")


def properties(count: int) -> bytes:
    return b"\x40" + count.to_bytes(2, "little") + bytes(4 * count)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\0", "flags 0x00"),
        (b"\x80", "flags 0x80"),
        (b"\x90\1", "flags 0x90"),
        (b"\x10\2", "payload format 2"),
        (b"\2\1\0\xff", "UTF-8"),
        (properties(0), "0 user properties"),
        (properties(PROPERTIES_LIMIT + 1), "1025 user properties"),
    ],
)
def test_extras_that_cannot_be_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(BadFrame, match=says):
        Extras.decode(data)


@pytest.mark.parametrize(
    "most",
    [
        Extras(expiry_s=0),
        Extras(expiry_s=2**32 - 1),
        Extras(number=2**63 - 1),
        Extras(sealed=("x" * 65_535, None, None, 0)),
        Extras(properties=(("", ""),) * PROPERTIES_LIMIT),
    ],
)
def test_the_most_that_extras_can_say(most: Extras) -> None:
    assert Extras.decode(most.encode()) == most


@pytest.mark.parametrize(
    "faulty",
    [
        Extras(expiry_s=-1),
        Extras(expiry_s=2**32),
        Extras(number=-1),
        Extras(number=2**64),
        Extras(sealed=("\ud800", None, None, None)),
        Extras(sealed=(None, "x" * 65_536, None, None)),
        Extras(sealed=(None, None, bytes(65_536), None)),
        Extras(sealed=(None, None, None, 2)),
        Extras(sealed=(None, None, None, 256)),
        Extras(sealed=(None, None, None)),
        Extras(properties=(("\ud800", ""),)),
        Extras(properties=(("", "x" * 65_536),)),
        Extras(properties=(("", ""),) * (PROPERTIES_LIMIT + 1)),
    ],
)
def test_extras_that_fit_no_record_are_our_fault(faulty: Extras) -> None:
    with pytest.raises(OurFault):
        faulty.encode()


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
