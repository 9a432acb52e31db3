"""Columns of records are what `Records` and `Extras` read one by one, also where contents are broken or hostile."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import TIME_MS_MAX, has_expired, is_of_a_time, is_topic
from keys.errors import BadFrame, KeysError
from keys.records import DROPPED, QOS, RECORD_FLAGS, RETAIN, Extras, Records, encode
from spark_ingest.opening.contents import SEALED_TYPES
from spark_ingest.opening.extras import read_extras
from spark_ingest.opening.unpacking import unpack

ARRIVED_MS = 1_000_000_000
_TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
EXTRAS = st.builds(
    Extras,
    expiry_s=st.none() | st.integers(0, 2**32 - 1),
    sealed=st.tuples(
        st.none() | _TEXTS, st.none() | _TEXTS, st.none() | st.binary(max_size=5), st.sampled_from((None, 0, 1))
    ),
    number=st.none() | st.integers(0, 2**64 - 1),
    properties=st.lists(st.tuples(_TEXTS, _TEXTS), max_size=3).map(tuple),
).map(Extras.encode)
TOPICS = (b"a", b"b/c", "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n".encode(), b"\xff", b"elsewhere")
RECORDS = st.tuples(
    st.sampled_from(RECORD_FLAGS), st.sampled_from((0, 5, TIME_MS_MAX, TIME_MS_MAX + 1)), st.sampled_from(TOPICS),
    st.just(b"") | EXTRAS | st.binary(min_size=1, max_size=9), st.binary(max_size=9),
)  # fmt: skip


@st.composite
def contents(draw: Any) -> bytes:
    """Of some records; now and then with one byte changed, cut, or with more behind it."""
    flags, times, topics, extras, payloads = zip(*draw(st.lists(RECORDS, min_size=1, max_size=9)), strict=True)
    made = encode(bytes(flags), times, topics, extras, payloads)
    kind = draw(st.sampled_from(("whole", "whole", "change", "cut", "add")))
    at = draw(st.integers(0, len(made) - 1))
    if kind == "change":
        return made[:at] + bytes([made[at] ^ 1 << draw(st.integers(0, 7))]) + made[at + 1 :]
    if kind == "cut":
        return made[:at]
    return made + bytes(draw(st.sampled_from((1, 8)))) if kind == "add" else made


def named(origin: int, topic: bytes) -> str | None:
    """Topics that may be named, not the same for all."""
    return None if topic in (b"\xff", b"elsewhere") or (origin and topic == b"a") else topic.decode("utf-8", "replace")


def is_unfit(extras: Extras) -> bool:
    content_type, response_topic = extras.sealed[:2]
    texts = [text for pair in extras.properties for text in pair] + [content_type or ""]
    return any("\0" in str(text) for text in texts) or (
        response_topic is not None and not is_topic(str(response_topic))
    )


def one_by_one(
    made: list[bytes], firsts: list[int], origins: list[int], retained: list[bool]
) -> tuple[list[tuple[Any, ...]], set[int]]:
    rows, closed = [], set()
    for batch, (content, first, origin, alone) in enumerate(zip(made, firsts, origins, retained, strict=True)):
        try:
            records = Records.decode(content)
        except BadFrame:
            closed.add(batch)
            continue
        for at, flag in enumerate(records.flags):
            if flag & DROPPED:
                continue
            name, time_ms = named(origin, records.topics[records.indexes[at]]), records.times[at]
            try:
                extras = records.extras(at)
            except KeysError:
                extras = None
            misplaced = bool(flag & RETAIN) is not alone or (alone and len(records) > 1)
            if name is None or extras is None or not is_of_a_time(time_ms) or misplaced:
                closed.add(batch)
                continue
            number = first + at if extras.number is None else extras.number
            expired = extras.expiry_s is not None and has_expired(time_ms, extras.expiry_s, ARRIVED_MS)
            if expired or is_unfit(extras) or (alone and number != first):
                closed.add(batch)
            else:
                rows.append((
                    batch, number, flag & QOS, bool(flag & RETAIN), name, time_ms, records.payload(at),
                    extras.properties, *extras.sealed,
                ))  # fmt: skip
    return rows, closed


@given(st.lists(st.tuples(contents(), st.integers(0, 2**40), st.integers(0, 1), st.booleans()), max_size=5))
def test_columns_are_what_records_say_one_by_one(batches: list[tuple[bytes, int, int, bool]]) -> None:
    made, firsts, origins, retained = ([each[at] for each in batches] for at in range(4))
    found, closed = unpack(
        made,
        np.array(firsts, np.int64),
        np.array(origins, np.int64),
        np.array(retained, bool),
        np.full(len(made), ARRIVED_MS),
        named,
    )
    content = found.content
    pairs = [tuple((pair["name"], pair["value"]) for pair in row) for row in content.properties.to_pylist()]
    columns = [found.batches.tolist(), found.numbers.tolist(), found.qos.tolist(), found.retain.tolist()]
    columns += [content.topic.to_pylist(), content.time_ms.tolist(), content.payload.to_pylist(), pairs]
    columns += [content.sealed[name].to_pylist() for name in SEALED_TYPES]
    rows, refused = one_by_one(made, firsts, origins, retained)
    assert list(zip(*columns, strict=True)) == rows
    assert set(closed) == refused


def test_topics_are_asked_for_once_whatever_the_number_of_records() -> None:
    made = [encode(bytes(64), [1] * 64, [b"a", b"b"] * 32, [b""] * 64, [b""] * 64)] * 50
    asked: list[tuple[int, bytes]] = []

    def named(origin: int, topic: bytes) -> str:
        asked.append((origin, topic))
        return topic.decode()

    found, closed = unpack(made, np.arange(50), np.arange(50) % 2, np.zeros(50, bool), np.zeros(50), named)
    assert (len(found.batches), closed) == (3200, {})
    assert sorted(asked) == [(0, b"a"), (0, b"b"), (1, b"a"), (1, b"b")]


def test_a_number_beyond_all_publications_costs_its_own_record() -> None:
    """A publisher can write it, and no column of Spark's holds it."""
    data = b"".join(parts := [Extras(number=number).encode() for number in (7, 2**63, 2**63 - 1)])
    ends = np.cumsum([len(part) for part in parts])
    found, bad = read_extras(data, np.concatenate(([0], ends[:-1])), ends, np.array([0, 2, 3]), 5)
    assert list(bad) == [2]
    assert found.numbers.tolist() == [7, -1, -1, 2**63 - 1, -1]
