"""The spool on disk: what is synced survives, what is torn does not show, offsets move over it exactly once."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ingest.errors import BadOption, SpoolBusy, SpoolDamaged, SpoolError, SpoolGap
from spark_ingest.spool.consumers import Consumer, forget
from spark_ingest.spool.index import SegmentGroup, decode_entries, encode_entry
from spark_ingest.spool.segments import (
    ByteRange,
    Offset,
    Position,
    as_offset,
    positions_of,
    read_groups,
    segment_numbers,
    segment_path,
)
from spark_ingest.spool.view import TASK_BYTES, SpoolView, in_tasks
from spark_ingest.spool.writer import SpooledKey, SpoolRecord, SpoolWriter

CAP = 1 << 30


def record(sequence: int, size: int = 40, key: int = 1) -> SpoolRecord:
    return SpoolRecord(
        publisher=bytes(16), sequence=sequence, key_id=bytes([key]) * 16, wire_topic="plant/a", header=b"h" * 120,
        sealed=random.Random(sequence).randbytes(size), qos=1, retain=False, published_us=1, received_us=2,
    )  # fmt: skip


def material(key: int = 1) -> dict[bytes, SpooledKey]:
    return {bytes([key]) * 16: SpooledKey(b"key header", b"shares")}


def opened(root: Path, name: str = "main", *, cap: int = CAP, segment: int = 1 << 20) -> SpoolWriter:
    writer = SpoolWriter(root, name, cap_bytes=cap, segment_bytes=segment)
    writer.roll(b"state")
    return writer


def fill(writer: SpoolWriter, sequences: range, rows: int = 10) -> None:
    for first in range(sequences.start, sequences.stop, rows):
        if writer.segment_full:
            writer.roll(b"state")
        writer.append([record(n) for n in range(first, min(first + rows, sequences.stop))], material())


def sequences_in(view: SpoolView, start: Offset, end: Offset, parts: int = 3) -> list[int]:
    found = []
    for extent in view.ranges(start, end, parts):
        rows = [n for batch in read_groups(extent) for n in batch.column("sequence").to_pylist()]
        assert len(rows) == extent.rows
        found += rows
    return found


def everything(root: Path) -> list[int]:
    view = SpoolView(root)
    start = view.earliest()
    return sequences_in(view, start, view.advance(start))


# ------------------------------------------------------------------------------------------------ crashes


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_torn_tail_of_a_segment_gives_whole_groups_only(data: st.DataObject) -> None:
    """A power failure: data cut or overwritten behind the last fsync that we know of, index entries gone."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        writer = opened(root)
        fill(writer, range(40), rows=8)
        writer.close()
        segment, index = segment_path(root / "main", 1), segment_path(root / "main", 1, "index")
        kept = data.draw(st.integers(0, 5), label="index entries that survived")
        index.write_bytes(index.read_bytes()[: kept * 16 + data.draw(st.integers(0, 15))])
        synced = decode_entries(index.read_bytes())
        floor = synced[-1].end if synced else 0
        content = bytearray(segment.read_bytes())
        if floor < len(content):
            at = data.draw(st.integers(max(floor, 1500), len(content)), label="damage begins")
            if data.draw(st.booleans(), label="cut"):
                del content[at:]
            else:
                content[at:] = bytes(len(content) - at)
        segment.write_bytes(content)
        SpoolWriter(root, "main", cap_bytes=CAP).close()
        there = everything(root)
        assert there == list(range(len(there)))
        assert len(there) % 8 == 0
        assert len(there) >= 8 * len(synced)


def test_a_segment_shorter_than_its_index_is_reported_and_not_hidden(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    fill(writer, range(20))
    writer.close()
    path = segment_path(tmp_path / "main", 1)
    view = SpoolView(tmp_path)
    (extent,) = view.ranges({}, view.advance({}), 1)
    os.truncate(path, path.stat().st_size - 100)  # the seal, and of the last group
    with pytest.raises(SpoolDamaged):
        SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    with pytest.raises(SpoolDamaged):
        list(read_groups(extent))


# -------------------------------------------------------------------------------------- index and offsets


@given(st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(0, 1 << 31)), max_size=20), st.binary(max_size=40))
def test_index_entries_survive_whatever_follows_them(entries: list[tuple[int, int]], junk: bytes) -> None:
    groups, end = [], 0
    for step, rows in entries:
        end += step
        groups.append(SegmentGroup(end, rows))
    data = b"".join(map(encode_entry, groups))
    assert decode_entries(data + junk)[: len(groups)] == groups
    assert decode_entries(data[:-1]) == groups[:-1]
    assert decode_entries(data + bytes(64)) == groups, "a zeroed tail is no entry"


@given(st.dictionaries(st.text("abc", min_size=1), st.tuples(st.integers(1, 99), st.integers(0, 1 << 40))))
def test_equal_offsets_are_equal_text(places: dict[str, tuple[int, int]]) -> None:
    positions = {name: Position(*at) for name, at in places.items()}
    text = json.dumps(as_offset(positions))
    assert json.dumps(as_offset(dict(reversed(positions.items())))) == text
    assert positions_of(json.loads(text)) == positions


@pytest.mark.parametrize("offset", [{"main": {"segment": 1}}, {"main": 3}, {"main": {"segment": "x", "byte": 1}}])
def test_a_foreign_offset_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(SpoolError):
        positions_of(offset)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=25), st.lists(st.integers(1, 60), max_size=12), st.integers(1, 5)
)
def test_limited_batches_cover_everything_once_and_in_order(groups: list[int], limits: list[int], parts: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        writer = opened(root, segment=15_000)
        start, view, found = SpoolView(root).earliest(), SpoolView(root), []
        first = 0
        steps: Iterator[int] = iter(limits)
        for rows in groups:
            fill(writer, range(first, first + rows), rows)
            if writer.segment_full:
                writer.roll(b"")
            first += rows
            limit = next(steps, None)
            if limit is not None:
                end = view.advance(start, limit)
                taken = sequences_in(view, start, end, parts)
                assert len(taken) <= max(limit, 30)
                found += taken
                start = end
        end = view.advance(start)
        found += sequences_in(view, start, end, parts)
        assert found == list(range(first))
        assert view.advance(end) == end, "nothing new must be the same offset"
        assert view.latest() == end or not groups


def test_a_limit_takes_what_was_received_first_of_all_receivers(tmp_path: Path) -> None:
    """Else a watermark makes the rows of the slower receiver late: `quick` has a row a second, `slow` one in ten."""
    for name, every in (("quick", 1), ("slow", 10)):
        writer = opened(tmp_path, name)
        for first in range(0, 600 // every, 10):
            rows = [record(n)._replace(received_us=1_000_000 * every * (n + 1)) for n in range(first, first + 10)]
            writer.append(rows, {})
    view = SpoolView(tmp_path)
    at = view.earliest()
    newest_us = 0
    while (end := view.advance(at, 40)) != at:
        times = [
            time for each in view.ranges(at, end, 1) for batch in read_groups(each)
            for time in batch.column("received_at").cast("int64").to_pylist()
        ]  # fmt: skip
        assert 0 < len(times) <= 40
        assert min(times) > newest_us - 100_000_000, "a group of the slow receiver spans 100 s"
        newest_us, at = max(newest_us, *times), end
    assert at == view.latest()


def test_reading_stops_at_a_target(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    fill(writer, range(20))
    view = SpoolView(tmp_path)
    target = positions_of(view.latest())
    fill(writer, range(20, 40))
    opened(tmp_path, "later").append([record(1)], {})
    end = view.advance(view.earliest(), None, target)
    assert sequences_in(view, view.earliest(), end) == list(range(20))


def test_partitions_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.spool.view.RANGE_BYTES_MIN", 1)
    writer = opened(tmp_path)
    for first in range(0, 40, 10):
        writer.append([record(n, 20_000) for n in range(first, first + 10)], material())
    view = SpoolView(tmp_path)
    extents = view.ranges({}, view.advance({}), 4)
    assert [extent.rows for extent in extents] == [10] * 4
    assert len(view.ranges({}, view.advance({}), 1)) == 1


def test_a_task_reads_several_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.spool.view.RANGE_BYTES_MIN", 1)
    writer = opened(tmp_path, segment=10_000)
    fill(writer, range(400))
    view = SpoolView(tmp_path)
    extents = view.ranges({}, view.advance({}), 2)
    assert len(extents) > 4, "none goes beyond its segment"
    tasks = in_tasks(extents, 2)
    assert len(tasks) == 2
    rows = [batch for task in tasks for extent in task for batch in read_groups(extent)]
    assert [each for batch in rows for each in batch.column("sequence").to_pylist()] == list(range(400))


def test_little_is_one_task_whatever_it_lies_in() -> None:
    """A second task of a micro-batch costs more than to read some thousand rows, and its first a second."""
    little = [ByteRange(str(number), 0, 40_000, 100) for number in range(8)]
    assert in_tasks(little, 2) == [tuple(little)]
    assert len(in_tasks([ByteRange(each.path, 0, 4 << 20, 9_000) for each in little], 2)) == 2


@settings(max_examples=50)
@given(st.lists(st.integers(1, TASK_BYTES)), st.integers(1, 20))
def test_tasks_hold_all_ranges_in_order_and_none_holds_many_large_ones(sizes: list[int], parts: int) -> None:
    ranges = [ByteRange(str(number), 0, size, 1) for number, size in enumerate(sizes)]
    tasks = in_tasks(ranges, parts)
    assert [each for task in tasks for each in task] == ranges
    assert all(len(task) == 1 or sum(each.end for each in task) <= 1.5 * TASK_BYTES for task in tasks)
    # Neighbours that are no task together hold more than half a task's share between them.
    assert len(tasks) <= 2 * max(parts, sum(sizes) / TASK_BYTES) + 2


# ------------------------------------------------------------------------------------- consumers, trimming


def test_only_what_every_consumer_has_behind_it_is_trimmed(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment=10_000)
    fill(writer, range(400))
    view = SpoolView(tmp_path)
    fast, slow = Consumer(tmp_path, "fast", view), Consumer(tmp_path, "slow", view)
    start = fast.register()
    assert slow.register() == start
    end = view.latest()
    assert fast.commit(end) == 0, "slow has read nothing"
    middle = view.advance(start, 200)
    assert slow.commit(middle) > 0
    assert sequences_in(view, middle, end) == list(range(200, 400))
    assert slow.commit(end) > 0
    assert segment_numbers(tmp_path / "main") == [end["main"]["segment"]]


def test_a_query_that_restarts_further_back_is_protected_again(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment=10_000)
    fill(writer, range(400))
    view = SpoolView(tmp_path)
    other, query = Consumer(tmp_path, "other", view), Consumer(tmp_path, "query", view)
    start = query.register()
    other.register()
    query.commit(view.latest())
    again = Consumer(tmp_path, "query", view)
    again.needs(start)
    other.commit(view.latest())
    assert sequences_in(view, start, view.latest()) == list(range(400))


def test_a_forgotten_consumer_holds_nothing(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment=10_000)
    fill(writer, range(400))
    view = SpoolView(tmp_path)
    gone, query = Consumer(tmp_path, "gone", view), Consumer(tmp_path, "query", view)
    gone.register()
    query.register()
    assert query.commit(view.latest()) == 0
    before = segment_numbers(tmp_path / "main")
    assert forget(tmp_path, "gone")
    assert segment_numbers(tmp_path / "main") == before[-1:], "what it alone held goes at once"
    assert not forget(tmp_path, "gone")


def test_a_trimmed_checkpoint_is_an_error_and_not_a_silent_gap(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment=10_000)
    fill(writer, range(400))
    view = SpoolView(tmp_path)
    old = view.advance(view.earliest(), 50)
    consumer = Consumer(tmp_path, "job", view)
    consumer.register()
    consumer.commit(view.latest())
    with pytest.raises(SpoolGap):
        view.advance(old)
    with pytest.raises(SpoolGap):
        view.ranges(old, view.latest(), 2)


def test_a_checkpoint_beyond_the_spool_is_an_error(tmp_path: Path) -> None:
    fill(opened(tmp_path), range(10))
    with pytest.raises(SpoolGap):
        SpoolView(tmp_path).ranges({}, {"main": {"segment": 1, "byte": 1 << 30}}, 1)


def test_two_live_queries_cannot_share_a_name(tmp_path: Path) -> None:
    view = SpoolView(tmp_path)
    first = Consumer(tmp_path, "job", view)
    first.attach()
    with pytest.raises(SpoolBusy, match="consumer=NAME"):
        Consumer(tmp_path, "job", view).attach(patience_s=0)
    first.detach()
    Consumer(tmp_path, "job", view).attach(patience_s=0)
    with pytest.raises(BadOption):
        Consumer(tmp_path, "../job", view)


def test_the_cap_is_told_and_lifted_by_trimming(tmp_path: Path) -> None:
    writer = opened(tmp_path, cap=60_000, segment=10_000)
    fill(writer, range(50))
    assert not writer.full
    fill(writer, range(50, 400))
    assert writer.full
    view = SpoolView(tmp_path)
    consumer = Consumer(tmp_path, "job", view)
    consumer.register()
    consumer.commit(view.latest())
    assert not writer.full
