"""What a receiver says beside its segments never fails it, and is bounded."""

from __future__ import annotations

from pathlib import Path

from spark_ingest.spool.trouble import TROUBLE, TROUBLE_CHARS, tell_trouble, told_trouble


def test_a_directory_that_cannot_be_written_is_no_further_trouble(tmp_path: Path) -> None:
    tell_trouble(tmp_path / "absent", "disk full")
    assert told_trouble(tmp_path / "absent") is None
    (tmp_path / TROUBLE).mkdir()
    tell_trouble(tmp_path, "disk full")
    tell_trouble(tmp_path, None)
    assert told_trouble(tmp_path) is None


def test_no_more_is_written_or_read_than_people_read(tmp_path: Path) -> None:
    tell_trouble(tmp_path, "x" * 3 * TROUBLE_CHARS)
    assert (tmp_path / TROUBLE).stat().st_size == TROUBLE_CHARS
    (tmp_path / TROUBLE).write_bytes(b"\xff" * 3 * TROUBLE_CHARS)
    assert len(told_trouble(tmp_path) or "") == TROUBLE_CHARS
