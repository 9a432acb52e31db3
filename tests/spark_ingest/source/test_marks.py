"""What a checkpoint says beside positions: its owner, which spool, which devices."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spark_ingest.errors import BadOption, SpoolGap
from spark_ingest.source.marks import MARK, OffsetMarks, new_owner, owner_of
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.spool.test_segments import fill, opened


def made(root: Path, rows: int = 30) -> SpoolView:
    writer = opened(root)
    fill(writer, range(rows))
    writer.close()
    return SpoolView(root)


def test_marks_come_back_and_equal_offsets_are_equal_text(tmp_path: Path) -> None:
    view = made(tmp_path)
    marks = OffsetMarks(view, None)
    owner = new_owner()
    offset = marks.stamped(view.latest(), owner)
    assert owner_of(offset) == owner
    assert marks.positions(json.loads(json.dumps(offset))) == view.latest()
    again = OffsetMarks(SpoolView(tmp_path), None)
    assert json.dumps(again.stamped(again.positions(offset), owner_of(offset))) == json.dumps(offset)


def test_an_offset_of_an_earlier_version_stays_as_it_is(tmp_path: Path) -> None:
    view = made(tmp_path)
    marks = OffsetMarks(view, None)
    assert owner_of(view.latest()) == ""
    assert marks.stamped(marks.positions(view.latest()), "") == view.latest()


def test_an_empty_spool_has_an_owner_too(tmp_path: Path) -> None:
    marks = OffsetMarks(SpoolView(tmp_path), None)
    offset = marks.stamped({}, "ab")
    assert offset == {MARK: {"owner": "ab", "parts": {}}}
    assert marks.positions(offset) == {}


def test_a_spool_that_began_anew_is_not_taken_for_the_one_of_the_checkpoint(tmp_path: Path) -> None:
    """Records of equal size end at equal bytes: positions alone would fit."""
    view = made(tmp_path)
    offset = OffsetMarks(view, None).stamped(view.latest(), "ab")
    shutil.rmtree(tmp_path / "main")
    view = made(tmp_path)
    assert view.latest()["main"]["byte"] == offset["main"]["byte"]
    with pytest.raises(SpoolGap, match="another spool"):
        OffsetMarks(view, None).positions(offset)
    assert OffsetMarks(view, None, lossy=True).positions(offset) == {}


def test_another_shard_is_refused(tmp_path: Path) -> None:
    view = made(tmp_path)
    offset = OffsetMarks(view, "1:1/2").stamped(view.latest(), "ab")
    assert OffsetMarks(view, "1:1/2@1763769600000,1/3").positions(offset)
    for shard in (None, "1:1/3"):
        with pytest.raises(BadOption, match="shard_before"):
            OffsetMarks(view, shard).positions(offset)
