"""Rows of the spool that hold batches: each record is a row, what is wrong with one closes that one alone.

Columns of records are what `Records` and `Extras` read one by one, also where contents are broken or hostile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.wire import TIME_MS_MAX, has_expired, is_of_a_time, is_topic
from keys.errors import BadFrame, KeysError
from keys.records import DROPPED, FILL_MAX, QOS, RECORD_FLAGS, RETAIN, Extras, Records, encode, fill
from spark_ingest.opening.contents import SEALED_TYPES
from spark_ingest.opening.unpacking import read_extras, unpack
from spark_ingest.receiving.division import Part
from spark_ingest.spool.sharding import Shard
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.region import NOW, Publisher

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


@pytest.mark.long
@settings(max_examples=100, deadline=None)
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


pytestmark = pytest.mark.invariant(13)

MS = int(NOW * 1000)
BATCHES = "veilmq/batch/1"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def content(*records: tuple[str | bytes, bytes], qos: int = 1, extras: bytes = b"") -> bytes:
    topics = [topic if isinstance(topic, bytes) else topic.encode() for topic, _ in records]
    count = len(records)
    times = [MS + at for at in range(count)]
    return encode(bytes([qos]) * count, times, topics, [extras] * count, [payload for _, payload in records])


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["sequence"], row["topic"], row["payload"], row["qos"], row["retain"]) for row in rows]


def test_each_record_is_a_row_with_its_own_number_beside_rows_of_one(job: Job) -> None:
    publisher = job.publisher
    batch = content(("plant/a", b"1"), ("plant/b", b"2"), ("plant/a", b"3"), qos=2)
    job.publish(
        publisher.seal("plant/x", b"first", sequence=1),
        publisher.seal("plant/a", clear=batch, sequence=5),
        publisher.seal("plant/y", b"last", sequence=9, retain=True),
    )
    rows = job.rows()
    assert brief(rows) == [
        (1, "plant/x", b"first", 1, False),
        (5, "plant/a", b"1", 2, False),
        (6, "plant/b", b"2", 2, False),
        (7, "plant/a", b"3", 2, False),
        (9, "plant/y", b"last", 1, True),
    ]
    assert {row["publisher"] for row in rows} == {publisher.identity.party_id.hex()}
    assert [round(row["published_at"].timestamp() * 1000) - MS for row in rows[1:4]] == [0, 1, 2]


def test_properties_and_numbers_of_their_own_come_with_the_record(job: Job) -> None:
    from keys.records import Extras

    extras = Extras(number=77, properties=(("k", "1"), ("k", "2"))).encode()
    job.publish(job.publisher.seal("plant/a", clear=content(("plant/a", b""), extras=extras), sequence=70))
    (row,) = job.rows()
    assert row["sequence"] == 77
    assert [(p["name"], p["value"]) for p in row["properties"]] == [("k", "1"), ("k", "2")]


def test_what_a_record_says_of_itself_and_its_place_are_columns(job: Job) -> None:
    from keys.records import DROPPED, Extras

    extras = [Extras(sealed=("text/csv", "plant/reply", b"\0c", 1)).encode(), b"", b""]
    flags, topics = bytes([1, 0, 1 | DROPPED]), [b"plant/a", b"plant/b", b"plant/c"]
    batch = encode(flags, [MS] * 3, topics, extras, [b"1", b"2", b"3"])
    job.publish(job.publisher.seal("plant/x", sequence=1), job.publisher.seal("plant/a", clear=batch, sequence=5))
    names = "retain, content_type, response_topic, correlation_data, payload_format, segment, offset"
    one, first, second = job.rows(columns=names)
    place = (first["segment"], first["offset"])
    assert tuple(first.values()) == (False, "text/csv", "plant/reply", b"\0c", 1, *place)
    assert tuple(second.values()) == (False, None, None, None, None, *place)
    assert tuple(one.values()) == (False, None, None, None, None, *place)
    assert not job.rows("quarantine")


@pytest.mark.parametrize("bad", ["elsewhere/a", "$SYS/a", b"plant/\xff", "plant/+"])
def test_one_record_that_may_not_be_read_closes_itself_alone(job: Job, bad: str | bytes) -> None:
    job.publish(
        job.publisher.seal("plant/a", clear=content(("plant/a", b"1"), (bad, b"2"), ("plant/b", b"3")), sequence=5)
    )
    assert [row["sequence"] for row in job.rows()] == [5, 7]
    (closed,) = job.rows("quarantine")
    assert (closed["sequence"], closed["wire_topic"]) == (5, BATCHES)


def test_a_batch_whose_structure_fails_is_one_row_of_quarantine(job: Job) -> None:
    job.publish(job.publisher.seal("plant/a", clear=content(("plant/a", b"1"))[:-8], sequence=5))
    assert job.rows() == []
    (closed,) = job.rows("quarantine")
    assert "frame" in closed["reason"]


def test_filled_batches_are_rows_beside_others_and_what_is_no_zero_behind_one_closes_it(job: Job) -> None:
    job.publish(
        job.publisher.seal("plant/a", clear=fill(content(("plant/a", b"1"), ("plant/b", b"2")), 512), sequence=5)
    )
    job.publish(job.publisher.seal("plant/a", clear=content(("plant/a", b"3")), sequence=9))
    job.publish(job.publisher.seal("plant/a", clear=fill(content(("plant/a", b"4")), 64), sequence=12))
    bad = content(("plant/a", b"5")) + bytes(15) + b"\1"
    job.publish(job.publisher.seal("plant/a", clear=bad, sequence=15))
    job.publish(job.publisher.seal("plant/a", clear=content(("plant/a", b"6")) + bytes(FILL_MAX), sequence=18))
    assert sorted(row["payload"] for row in job.rows()) == [b"1", b"2", b"3", b"4"]
    assert [row["sequence"] for row in job.rows("quarantine")] == [15, 18]


def test_topics_that_are_asked_for_are_found_within_batches(job: Job) -> None:
    job.publish(job.publisher.seal("plant/a", clear=content(("plant/a", b"1"), ("plant/b", b"2")), sequence=5))
    assert [row["topic"] for row in job.rows(topics="plant/b")] == ["plant/b"]


def test_a_record_that_its_publisher_had_no_right_to_when_it_came_stays_closed(job: Job) -> None:
    narrow = Publisher(job.overlay, "narrow", publish=["plant/a"])
    job.publish(narrow.seal("plant/a", clear=content(("plant/a", b"1"), ("plant/b", b"2")), sequence=5))
    assert [row["topic"] for row in job.rows()] == ["plant/a"]
    (closed,) = job.rows("quarantine")
    assert "its publisher may not" in closed["reason"]


def test_each_batch_has_one_receiver_and_a_query_goes_by_the_same_parts(job: Job) -> None:
    publisher = job.publisher
    sealed = [publisher.seal("plant/a", clear=content(("plant/a", b"1")), sequence=n << 12) for n in range(1, 40)]
    parts = [Part(Shard(number, 3)) for number in (1, 2, 3)]
    told = [dict(each.piece(1).properties)["vmq"] for each in sealed]
    takers = [[part.takes(text) for part in parts].index(True) for text in told]
    assert all(sum(part.takes(text) for part in parts) == 1 for text in told)
    assert len(set(takers)) == 3
    owners = [[Shard(n, 3).owns(at << 12) for n in (1, 2, 3)].index(True) for at in range(1, 40)]
    assert owners == takers


@pytest.mark.parametrize("flags", [bytes([5, 5]), bytes([5, 1]), bytes([1])], ids=["two", "one of two", "none"])
def test_what_is_retained_is_one_record_that_says_so(job: Job, flags: bytes) -> None:
    count = len(flags)
    several = encode(flags, [MS] * count, [b"plant/a"] * count, [b""] * count, [b"1"] * count)
    job.publish(job.publisher.seal("plant/a", clear=several, retain=True))
    assert job.rows() == []
    assert len(job.rows("quarantine")) == 1


def test_a_record_that_claims_to_be_retained_among_others_stays_closed(job: Job) -> None:
    batch = encode(bytes([1, 5]), [MS] * 2, [b"plant/a", b"plant/b"], [b""] * 2, [b"1", b"2"])
    job.publish(job.publisher.seal("plant/a", clear=batch))
    assert [row["topic"] for row in job.rows()] == ["plant/a"]
    assert len(job.rows("quarantine")) == 1
