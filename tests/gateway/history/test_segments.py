"""One file of a history: what another key opens, and what a publisher that goes leaves."""

from __future__ import annotations

from pathlib import Path

from bridge.contract import HistoryKey, HistoryPosition, HistoryRecord, before
from gateway.history.segments import Segment, erase_segment


def record(at: int, publisher: bytes = bytes(16)) -> HistoryRecord:
    return HistoryRecord(1, HistoryPosition(at, publisher, at, bytes(8)), b"k" * 16, b"body %d" % at)


def test_a_record_is_read_with_the_key_of_its_file_alone(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "1.segment", 1, bytes(32))
    segment.write([(1, record(5))], [HistoryKey(1, b"k" * 16, b"header", b"shares")])
    (place,) = segment.places(before(0), 1 << 40, 0, 8)
    assert segment.body_of(place.position) == b"body 5"
    assert segment.key_of(b"k" * 16) == HistoryKey(1, b"k" * 16, b"header", b"shares")
    segment.close()
    other = Segment(tmp_path / "1.segment", 1, b"x" * 32)
    assert other.body_of(place.position) is None
    assert other.key_of(b"k" * 16) is None
    other.close()


def test_a_publisher_that_goes_leaves_nothing(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "1.segment", 1, bytes(32))
    segment.write([(1, record(5)), (2, record(6, b"p" * 16))], [])
    segment.drop_publisher(b"p" * 16)
    assert [each.position.time_ms for each in segment.places(before(0), 1 << 40, 0, 8)] == [5]
    assert segment.about()[3].keys() == {bytes(16)}
    segment.close()
    erase_segment(tmp_path / "1.segment")
    assert not list(tmp_path.iterdir())
