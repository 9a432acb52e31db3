"""Packs on disk: whole or not there, of their own segment alone, and without their key once their segment goes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ingest.errors import SpoolDamaged, SpoolError
from spark_ingest.spool.consumers import Consumer, make_room
from spark_ingest.spool.packs import (
    SLOT_BYTES,
    PackFile,
    PackRun,
    PackTable,
    erase_pack,
    erase_unfinished,
    pack_of,
    pack_path,
    sealed_end,
    write_pack,
)
from spark_ingest.spool.segments import open_segment, segment_path
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.spool.test_segments import fill, opened

SLOT = bytes(range(1, SLOT_BYTES + 1))
RUNS = [b"first run", b"second"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a receiver with two finished segments."""
    writer = opened(tmp_path, segment=3_000)
    fill(writer, range(60), rows=30)
    writer.close()
    return tmp_path / "main"


def table_of(directory: Path, number: int = 1) -> PackTable:
    segment = open_segment(str(segment_path(directory, number)))
    runs = (PackRun(0, 5_000, 0, len(RUNS[0])), PackRun(5_000, 9_000, len(RUNS[0]), len(RUNS[1])))
    return PackTable(segment.name, segment.part, sealed_end(segment).hex(), (("plant/#", 3, 0),), ("0a0b",), runs)


def written(directory: Path, number: int = 1) -> bool:
    return write_pack(directory, number, table_of(directory, number), SLOT, RUNS, alone=contextlib.nullcontext)


def found(directory: Path, number: int = 1) -> PackFile | None:
    return pack_of(open_segment(str(segment_path(directory, number))))


def test_a_pack_is_read_as_it_was_written(directory: Path) -> None:
    assert found(directory) is None
    assert written(directory)
    pack = found(directory)
    assert pack is not None
    assert (pack.table, pack.slot) == (table_of(directory), SLOT)
    assert [bytes(pack.sealed_run(run)) for run in pack.table.runs] == RUNS
    assert pack_path(directory, 1).stat().st_mode & 0o777 == 0o600


def test_each_damage_of_what_is_not_sealed_is_told_with_the_way_out(directory: Path) -> None:
    assert written(directory)
    path = pack_path(directory, 1)
    whole = path.read_bytes()
    begin = whole.index(table_of(directory).encode())  # a brace may stand in the checksum before it, too
    for at in [*range(16), begin, begin + 40, whole.index(b"}", begin)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SpoolDamaged, match="ingest pack"):
            found(directory)
    for size in (0, 10, 70, begin + 9):
        path.write_bytes(whole[:size])
        with pytest.raises(SpoolDamaged):
            found(directory)
    path.write_bytes(whole[:-1])
    pack = found(directory)
    assert pack is not None
    with pytest.raises(SpoolDamaged, match="cut short"):
        pack.sealed_run(pack.table.runs[1])


def test_the_pack_of_another_segment_is_not_taken_for_its_own(directory: Path, tmp_path: Path) -> None:
    assert written(directory)
    pack_path(directory, 2).write_bytes(pack_path(directory, 1).read_bytes())
    with pytest.raises(SpoolDamaged, match="another segment"):
        found(directory, 2)
    writer = opened(tmp_path / "other", segment=3_000)  # the same rows, another spool
    fill(writer, range(60), rows=30)
    writer.close()
    pack_path(tmp_path / "other" / "main", 1).write_bytes(pack_path(directory, 1).read_bytes())
    with pytest.raises(SpoolDamaged, match="another segment"):
        found(tmp_path / "other" / "main")


def test_a_segment_that_grows_has_no_end_to_bind_a_pack_to(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    fill(writer, range(10))
    with pytest.raises(SpoolError, match="no seal"):
        sealed_end(open_segment(str(segment_path(tmp_path / "main", 1))))


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace", "gateway.files.sync_directory"])
@pytest.mark.parametrize("before", [False, True], ids=["new", "over another"])
def test_a_crash_at_each_step_leaves_no_pack_or_a_whole_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    """What a crash leaves of the temporary file is not taken for a pack, and goes with the next one's begin."""
    if before:
        assert written(directory)

    class Crash(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(step, dies)
        patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # who died tidies nothing up
        with pytest.raises(Crash):
            written(directory)
    pack = found(directory)
    renamed = step == "gateway.files.sync_directory"
    assert (pack is not None) == (before or renamed)
    assert pack is None or [bytes(pack.sealed_run(run)) for run in pack.table.runs] == RUNS
    left = [path.name for path in directory.iterdir() if path.name.endswith(".new")]
    assert bool(left) != renamed
    erase_unfinished(directory)
    assert not [path for path in directory.iterdir() if path.name.endswith(".new")]
    assert written(directory)


def test_a_pack_whose_segment_was_trimmed_meanwhile_never_appears(directory: Path) -> None:
    table = table_of(directory)

    @contextlib.contextmanager
    def trimmed() -> object:  # type: ignore[misc]
        segment_path(directory, 1).unlink()
        yield

    assert not write_pack(directory, 1, table, SLOT, RUNS, alone=trimmed)
    assert not pack_path(directory, 1).exists()
    assert not [path for path in directory.iterdir() if path.name.endswith(".new")]


def erased(copy: Path) -> bool:
    return SLOT not in copy.read_bytes() and RUNS[1] in copy.read_bytes()


def trim(root: Path) -> None:
    view = SpoolView(root)
    consumer = Consumer(root, "telemetry", view)
    consumer.register()
    consumer.commit(view.latest())


@pytest.mark.parametrize("goes", [trim, make_room])
def test_the_key_goes_before_the_pack_does(directory: Path, goes: Callable[[Path], object]) -> None:
    """Whoever kept the blocks of the file, here under another name, opens nothing with them."""
    assert written(directory)
    copy, unfinished = directory / "copy", directory / ".00000001.pack.77.new"
    os.link(pack_path(directory, 1), copy)
    unfinished.write_bytes(copy.read_bytes())
    os.link(unfinished, directory / "other")
    goes(directory.parent)
    assert not pack_path(directory, 1).exists()
    assert not unfinished.exists()
    assert erased(copy)
    assert erased(directory / "other")


def test_a_crash_between_erasing_and_removing_leaves_a_pack_that_nobody_uses(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written(directory)
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    assert erase_pack(directory, 1)
    pack = found(directory)
    assert pack is not None
    assert pack.slot is None


def test_a_spool_at_its_cap_lets_go_of_packs_that_only_repeat_what_is_not_read(directory: Path) -> None:
    view = SpoolView(directory.parent)
    Consumer(directory.parent, "telemetry", view).register()
    assert make_room(directory.parent) == 0
    assert written(directory)
    assert make_room(directory.parent) == 1
    assert found(directory) is None
    assert view.rows_between({}, view.latest()) == 60
