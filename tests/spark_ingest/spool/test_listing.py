"""Lists of segments are as fresh as a look at the directory, whatever its times say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_ingest.spool import listing
from spark_ingest.spool.listing import SETTLED_NS, SegmentList
from spark_ingest.spool.segments import segment_path


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
    real = listing.segment_numbers
    monkeypatch.setattr(listing, "segment_numbers", lambda path: listed.append(path) or real(path))
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
