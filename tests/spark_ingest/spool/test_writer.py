"""The writer of a spool: what is synced survives kills and full disks, and only one writes at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ingest.errors import SpoolBusy, SpoolError
from spark_ingest.spool.consumers import Consumer
from spark_ingest.spool.segments import SCHEMA, read_groups, segment_numbers, segment_path
from spark_ingest.spool.view import SpoolView
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.spool.test_segments import CAP, everything, fill, material, opened, record


def test_what_is_appended_is_read_back_whole(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.append([record(1), record(2), record(3, key=2)], material() | material(2))
    view = SpoolView(tmp_path)
    (extent,) = view.ranges({}, view.advance({}), 1)
    (batch,) = read_groups(extent)
    assert batch.column("sealed").to_pylist() == [record(n).sealed for n in (1, 2, 3)]
    assert batch.column("shares").to_pylist() == [b"shares", None, b"shares"], "a key stands where it is used first"
    assert batch.schema.equals(SCHEMA)


def test_a_segment_is_a_plain_arrow_stream(tmp_path: Path) -> None:
    fill(opened(tmp_path), range(25))
    with pa.ipc.open_stream(segment_path(tmp_path / "main", 1).read_bytes()) as reader:
        assert reader.read_all().column("sequence").to_pylist() == list(range(25))


def test_files_are_closed_to_others(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    fill(opened(root), range(5))
    Consumer(root, "job", SpoolView(root)).register()
    for path in root.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_every_group_holds_the_keys_that_it_uses(tmp_path: Path) -> None:
    fill(opened(tmp_path), range(30), rows=10)
    view = SpoolView(tmp_path)
    for extent in view.ranges({}, view.advance({}), 3):
        for batch in read_groups(extent):
            assert batch.column("key_header")[0].as_py() == b"key header"


def test_segments_roll_and_offsets_cross_them(tmp_path: Path) -> None:
    writer = opened(tmp_path, segment=20_000)
    fill(writer, range(500))
    assert len(segment_numbers(tmp_path / "main")) > 3
    assert everything(tmp_path) == list(range(500))


def test_kill_9_in_mid_write_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """A process that appends as fast as it can dies; every group that it told us of is there, once, in order."""
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tests.spark_ingest.spool.test_segments import material, opened, record
        writer = opened(Path(sys.argv[1]), segment=200_000)
        first = int(sys.argv[2])
        while True:
            if writer.segment_full:
                writer.roll(b"state")
            writer.append([record(n) for n in range(first, first + 7)], material())
            first += 7
            print(first, flush=True)
        """
    )
    told = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(told)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(60):
                told = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().splitlines()
            told = int(rest[-1]) if rest and rest[-1] else told
        SpoolWriter(tmp_path, "main", cap_bytes=CAP).close()
        there = everything(tmp_path)
        assert there == list(range(len(there)))
        assert told <= len(there) <= told + 7
        told = len(there)


def test_a_crashed_segment_is_never_appended_to(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    fill(writer, range(10))
    writer.close()
    size = segment_path(tmp_path / "main", 1).stat().st_size
    again = opened(tmp_path)
    fill(again, range(10, 20))
    assert segment_path(tmp_path / "main", 1).stat().st_size == size
    assert segment_numbers(tmp_path / "main") == [1, 2]
    assert everything(tmp_path) == list(range(20))


def test_death_while_a_segment_is_made_leaves_nothing_that_matters(tmp_path: Path) -> None:
    fill(opened(tmp_path), range(10))
    for torn in (b"", b"\xff\xff\xff\xff\x10"):
        path = segment_path(tmp_path / "two", 1)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(torn)
        writer = SpoolWriter(tmp_path, "two", cap_bytes=CAP)
        assert list(writer.history()) == []
        writer.roll(b"")
        writer.close()
        for path in (tmp_path / "two").glob("0*"):
            path.unlink()


def test_history_gives_back_the_newest_segment_and_its_state(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    assert writer.state == b""
    writer.roll(b"first")
    fill(writer, range(10))
    writer.roll(b"second")
    fill(writer, range(10, 15))
    writer.close()
    again = SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    assert again.state == b"second"
    assert [n for batch in again.history() for n in batch.column("sequence").to_pylist()] == list(range(10, 15))


def test_a_disk_that_fails_breaks_the_writer_and_not_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(tmp_path)
    fill(writer, range(10))

    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            writer.append([record(10)], {})
    with pytest.raises(SpoolError):
        writer.append([record(10)], {})
    writer.close()
    fill(opened(tmp_path), range(10, 20))
    assert everything(tmp_path) == list(range(20))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    with pytest.raises(SpoolBusy):
        SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    SpoolWriter(tmp_path, "other", cap_bytes=CAP).close()
    writer.close()
    SpoolWriter(tmp_path, "main", cap_bytes=CAP).close()
