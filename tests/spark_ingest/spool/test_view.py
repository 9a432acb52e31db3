"""Planning a micro-batch costs what the batch costs, however large the spool behind and before it.

Lists of segments are as fresh as a look at the directory, whatever its times say.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.spool import view as module
from spark_ingest.spool.index import SegmentIndex
from spark_ingest.spool.segments import Offset, Size, as_offset, segment_path
from spark_ingest.spool.view import SETTLED_NS, SegmentList, SpoolView
from spark_ingest.spool.writer import SpoolRecord
from tests.spark_ingest.spool.test_segments import fill, opened, record


def make(directory: Path, *numbers: int) -> None:
    for number in numbers:
        segment_path(directory, number).touch()


def set_time(directory: Path, ns: int) -> None:
    os.utime(directory, ns=(ns, ns))


def test_what_comes_and_goes_shows_at_once(tmp_path: Path) -> None:
    known = SegmentList(tmp_path)
    assert not known.numbers()
    for number in range(1, 40):
        make(tmp_path, number)
        assert list(known.numbers()) == list(range(max(1, number - 5), number + 1))
        if number > 5:
            segment_path(tmp_path, number - 5).unlink()
    assert not SegmentList(tmp_path / "none").numbers()


def test_a_directory_that_nobody_changed_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 1, 2)
    listed: list[Path] = []
    real = module.segment_numbers
    monkeypatch.setattr(module, "segment_numbers", lambda path: listed.append(path) or real(path))
    known = SegmentList(tmp_path)
    changed_ns = tmp_path.stat().st_mtime_ns
    for _ in range(3):  # it may be changed once more in the same tick
        assert list(known.numbers(changed_ns + SETTLED_NS)) == [1, 2]
    assert len(listed) == 3
    for _ in range(3):
        assert list(known.numbers(changed_ns + SETTLED_NS + 1)) == [1, 2]
    assert len(listed) == 4


def test_a_segment_that_came_without_another_time_shows(tmp_path: Path) -> None:
    """Of a file system that tells whole seconds."""
    make(tmp_path, 1)
    set_time(tmp_path, 10**18)
    known = SegmentList(tmp_path)
    assert list(known.numbers()) == [1]
    make(tmp_path, 2)
    set_time(tmp_path, 10**18)
    assert list(known.numbers()) == [1, 2]


SEGMENT_BYTES = 4_000
"""Of about three groups."""


@pytest.fixture
def view(tmp_path: Path) -> SpoolView:
    writer = opened(tmp_path, segment=SEGMENT_BYTES)
    fill(writer, range(200))
    writer.close()
    return SpoolView(tmp_path)


def positions(view: SpoolView) -> list[Offset]:
    """Every place that a query can stand at."""
    found = [view.earliest()]
    while (after := view.advance(found[-1], 1)) != found[-1]:
        found.append(after)
    return found


def test_sizes_between_any_two_places_are_those_of_the_groups_between(view: SpoolView) -> None:
    places = positions(view)
    assert len(places) == 21
    for start, end in itertools.combinations(places, 2):
        groups = list(view._groups_after("main", *(_at(view, place) for place in (start, end))))
        expected = Size(sum(group.rows for *_, group in groups), sum(group.end - begin for _, begin, group in groups))
        assert view.sizes_between(start, end) == {"main": expected}
        assert view.rows_between(start, end) == 10 * (places.index(end) - places.index(start))


def _at(view: SpoolView, offset: Offset) -> Any:
    from spark_ingest.spool.segments import positions_of

    return positions_of(offset)["main"]


def test_a_sealed_index_is_read_once_and_one_that_grows_again(
    view: SpoolView, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start, end = view.earliest(), view.latest()
    assert view.rows_between(start, end) == 200
    read: list[str] = []
    before = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *how, **more: (read.append(path.name), before(path, *how, **more))[1]
    )
    assert view.rows_between(start, end) == 200
    assert read == []
    fill(opened(tmp_path), range(200, 210))
    assert view.rows_between(start, view.latest()) == 210
    read.clear()
    for _ in range(3):
        assert view.rows_between(start, view.latest()) == 210
    assert set(read) == {segment_path(tmp_path, _at(view, view.latest()).segment, "index").name}


def received(first_us: int, count: int) -> list[SpoolRecord]:
    return [record(n)._replace(received_us=first_us + n) for n in range(count)]


def test_times_of_reception_lead_to_places(tmp_path: Path) -> None:
    """Groups of ten, received in a second each; the first segments are sealed, the last is not."""
    writer = opened(tmp_path, segment=SEGMENT_BYTES)
    for group in range(20):
        if writer.segment_full:
            writer.roll(b"")
        writer.append(received(1_000_000 * (group + 1), 10), {})
    view = SpoolView(tmp_path)
    assert view.since(0) == view.earliest()
    assert view.since(1_000_000 * 99) == view.latest()
    assert view.until(1_000_000 * 99) == view.latest()
    assert view.until(0) == view.earliest()
    for group in range(20):
        at = 1_000_000 * (group + 1)
        assert view.rows_between(view.since(at), view.latest()) == 200 - 10 * group
        assert view.rows_between(view.since(at + 9), view.latest()) == 200 - 10 * group
        assert view.rows_between(view.since(at + 10), view.latest()) == 190 - 10 * group
        assert view.rows_between(view.earliest(), view.until(at)) == 10 * group
        assert view.rows_between(view.earliest(), view.until(at + 1)) == 10 * group + 10
    assert view.age_s(view.earliest(), 11.0) == {"main": 10.0}
    assert view.age_s(view.latest(), 11.0) == {"main": 0.0}
    assert view.age_s(view.since(5_000_000), 11.0) == {"main": 6.0}


def test_what_is_behind_the_query_is_forgotten(view: SpoolView) -> None:
    places = positions(view)
    assert view.rows_between(places[-2], places[-1]) == 10
    assert {number for _, number in view._indexes} <= {_at(view, place).segment for place in places[-2:]}


def test_an_index_that_grows_is_read_on(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    index = SegmentIndex(tmp_path / "main", 1)
    assert index.groups() == []
    for count in (1, 2, 5):
        fill(writer, range(10 * count))
        index.groups()
    assert index.size_between(0, 8).sealed_batches == 80
    assert index.size_between(1, 3).sealed_batches == 20
    assert index.size_between(3, 3) == Size(0, 0)
    writer.close()


def test_an_offset_of_an_empty_receiver_has_no_size(tmp_path: Path) -> None:
    opened(tmp_path).close()
    view = SpoolView(tmp_path)
    assert view.sizes_between({}, view.latest()) == {"main": Size(0, 0)}
    assert view.sizes_between({}, as_offset({})) == {}


def test_sizes_hold_while_segments_come_and_from_places_before_those_that_were_asked(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment=SEGMENT_BYTES)
    view = SpoolView(tmp_path)
    for more in range(3):
        fill(writer, range(60 * more, 60 * more + 60))
        places = positions(SpoolView(tmp_path))
        for number, start in reversed(list(enumerate(places))):
            assert view.rows_between(start, places[-1]) == 10 * (len(places) - 1 - number)
            assert view.rows_between(places[-1], start) == 0
