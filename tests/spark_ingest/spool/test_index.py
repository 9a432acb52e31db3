"""Sealed segments: nothing of what was acknowledged is left out without a word, whatever is lost or altered on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ingest.errors import SpoolDamaged, SpoolError, SpoolGap
from spark_ingest.spool.index import SegmentIndex, Times, decode_entries, encode_seal, rebuilt, sealed_times
from spark_ingest.spool.segments import SCHEMA, ByteRange, open_segment, read_groups, segment_numbers, segment_path
from spark_ingest.spool.view import SpoolView, salvaged_groups
from spark_ingest.spool.writer import SpoolWriter, as_batch
from tests.spark_ingest.spool.test_segments import CAP, everything, fill, material, opened, record, sequences_in

ROWS = 200


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Segments of three groups; the newest is being written."""
    fill(opened(tmp_path, segment=10_000), range(ROWS))
    assert len(segment_numbers(tmp_path / "main")) > 4
    return tmp_path


def index_of(root: Path, number: int = 2) -> Path:
    return segment_path(root / "main", number, "index")


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("at", range(0, 48, 5))
def test_a_bit_of_a_sealed_index_costs_no_row(spool: Path, at: int) -> None:
    flip(index_of(spool), at)
    assert everything(spool) == list(range(ROWS))


def test_an_index_that_is_removed_emptied_or_cut_is_made_again(spool: Path) -> None:
    index_of(spool, 1).unlink()
    index_of(spool, 2).write_bytes(b"")
    index_of(spool, 3).write_bytes(index_of(spool, 3).read_bytes()[:16])
    assert everything(spool) == list(range(ROWS))


def test_what_cannot_be_made_again_is_told_with_the_way_out(spool: Path) -> None:
    index_of(spool).unlink()
    flip(segment_path(spool / "main", 2), -200)
    with pytest.raises(SpoolDamaged, match="failOnDataLoss=false"):
        everything(spool)
    view = SpoolView(spool, lossy=True)
    found = sequences_in(view, {}, view.latest())
    assert found[-1] == ROWS - 1
    assert len(found) < ROWS
    assert view.lost == {"main": 1}


def test_a_segment_that_lost_its_last_groups_with_their_entries_is_damaged(spool: Path) -> None:
    entries = decode_entries(index_of(spool).read_bytes())
    segment = segment_path(spool / "main", 2)
    segment.write_bytes(segment.read_bytes()[: entries[-2].end])
    index_of(spool).write_bytes(index_of(spool).read_bytes()[: 16 * (len(entries) - 1)])
    with pytest.raises(SpoolDamaged, match="damaged"):
        everything(spool)


@pytest.mark.parametrize("number", [2, 3])
def test_a_segment_that_is_missing_is_a_gap(spool: Path, number: int) -> None:
    segment_path(spool / "main", number).unlink()
    with pytest.raises(SpoolGap, match=f"no segment {number}"):
        everything(spool)
    view = SpoolView(spool, lossy=True)
    found = sequences_in(view, {}, view.latest())
    assert {found[0], found[-1]} == {0, ROWS - 1}
    assert view.lost["main"] >= 1


def test_a_segment_of_another_place_is_not_read_as_ours(spool: Path) -> None:
    shutil.copy(segment_path(spool / "main", 3), segment_path(spool / "main", 2))
    index_of(spool).unlink()
    with pytest.raises(SpoolDamaged, match="main/00000003"):
        everything(spool)


def test_an_offset_that_ends_inside_a_group_is_of_another_spool(spool: Path) -> None:
    view = SpoolView(spool)
    place = view.advance({}, 10)
    place["main"]["byte"] += 1
    with pytest.raises(SpoolGap, match="another spool"):
        view.advance(place)


def test_parts_of_two_spools_have_different_names_and_one_keeps_its_own(tmp_path: Path) -> None:
    for root in (tmp_path / "a", tmp_path / "b"):
        writer = opened(root)
        fill(writer, range(10))
        writer.close()
    parts = {SpoolView(tmp_path / name).part("main") for name in "ab"}
    assert len(parts) == 2
    opened(tmp_path / "a").close()
    assert open_segment(str(segment_path(tmp_path / "a" / "main", 2))).part in parts


def test_a_writer_that_ends_seals_and_so_does_the_next_one_after_a_crash(tmp_path: Path) -> None:
    for closes in (True, False):
        root = tmp_path / str(closes)
        writer = opened(root)
        fill(writer, range(30))
        groups = decode_entries(index_of(root, 1).read_bytes())
        if closes:
            writer.close()
        else:
            shutil.copytree(root, tmp_path / "crashed")
            root = tmp_path / "crashed"
            with segment_path(root / "main", 1).open("ab") as file:
                file.write(b"\xff\xff\xff\xff torn")
            SpoolWriter(root, "main", cap_bytes=CAP).close()
        index = SegmentIndex(root / "main", 1)
        assert index.groups() == groups
        assert index.times == Times(2, 2), "of `record`"
        assert rebuilt(open_segment(str(segment_path(root / "main", 1)))) == (groups, Times(2, 2))


def test_the_end_of_a_writer_shows_even_without_an_index(tmp_path: Path) -> None:
    """Nobody writes any more, so no later segment says that this one is final."""
    writer = opened(tmp_path)
    fill(writer, range(30))
    writer.close()
    flip(index_of(tmp_path, 1), 3)
    assert everything(tmp_path) == list(range(30))


def test_a_seal_fits_its_groups_alone() -> None:
    groups = decode_entries(b"")
    seal = encode_seal(groups, Times(1, 2))
    assert sealed_times(groups, seal + b"what follows") == Times(1, 2)
    for at in range(len(seal)):
        altered = bytearray(seal)
        altered[at] ^= 4
        assert sealed_times(groups, bytes(altered)) is None
    assert sealed_times(groups, seal[:-1]) is None


def test_damage_is_left_out_group_by_group(spool: Path) -> None:
    entries = decode_entries(index_of(spool).read_bytes())
    path = segment_path(spool / "main", 2)
    content = bytearray(path.read_bytes())
    content[entries[0].end : entries[0].end + 64] = bytes(64)
    path.write_bytes(content)
    extent = ByteRange(str(path), 0, entries[-1].end, 0)
    with pytest.raises(SpoolDamaged):
        list(read_groups(extent))
    left = sum(batch.num_rows for batch, _ in salvaged_groups(extent))
    assert left == sum(entry.rows for entry in entries) - entries[1].rows
    assert list(salvaged_groups(ByteRange(str(path) + "x", 0, 100, 1))) == []


@pytest.mark.parametrize("more", [0, 50])
def test_of_a_segment_that_was_cut_short_the_groups_before_are_there(spool: Path, more: int) -> None:
    """Its index tells of all of them, and so do the ranges that were planned."""
    entries = decode_entries(index_of(spool).read_bytes())
    path = segment_path(spool / "main", 2)
    path.write_bytes(path.read_bytes()[: entries[1].end + more])
    extent, told = ByteRange(str(path), 0, entries[-1].end, 0), list[SpoolError]()
    left = sum(batch.num_rows for batch, _ in salvaged_groups(extent, told.append))
    assert left == entries[0].rows + entries[1].rows
    assert len(told) == 1, told


# ------------------------------------------------------------------------------------------------- versions


def of_version(root: Path, metadata: dict[str, str], change: object = None) -> None:
    """A sealed segment as another version may have written it, and one of ours behind it."""
    directory = root / "main"
    directory.mkdir(parents=True)
    batch = as_batch([record(n) for n in range(10)], material())
    schema = SCHEMA
    columns = list(batch.columns)
    if change is not None:
        columns.insert(2, pa.array([1] * 10))
        schema = SCHEMA.insert(2, pa.field("added", pa.int64()))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    head = schema.with_metadata(metadata).serialize().to_pybytes()
    content = head + batch.serialize().to_pybytes()
    segment_path(directory, 1).write_bytes(content)
    segment_path(directory, 1, "state").write_bytes(b"")


def test_what_version_1_wrote_is_read_and_followed(tmp_path: Path) -> None:
    of_version(tmp_path, {"veilmq.spool": "1"})
    fill(opened(tmp_path), range(10, 20))
    assert everything(tmp_path) == list(range(20))


def test_a_column_more_needs_no_new_reader_and_a_form_that_does_says_so(tmp_path: Path) -> None:
    of_version(tmp_path / "a", {"veilmq.spool": "3", "veilmq.spool.needs": "2"}, change=True)
    writer = SpoolWriter(tmp_path / "a", "main", cap_bytes=CAP)
    writer.close()
    assert everything(tmp_path / "a") == list(range(10))
    of_version(tmp_path / "b", {"veilmq.spool": "3", "veilmq.spool.needs": "3"})
    segment_path(tmp_path / "b" / "main", 2).touch()
    with pytest.raises(SpoolDamaged, match="update this reader"):
        everything(tmp_path / "b")


# ---------------------------------------------------------------------------------------------------- states


def test_a_state_that_is_gone_is_made_up_for_by_rows(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    for first in (0, 10, 20):
        writer.roll(f"before {first}".encode())
        fill(writer, range(first, first + 10))
    writer.close()
    segment_path(tmp_path / "main", 3, "state").unlink()
    again = SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    assert again.state == b"before 10"
    assert [n for batch in again.history() for n in batch.column("sequence").to_pylist()] == list(range(10, 30))
    again.close()
    for number in (1, 2):
        segment_path(tmp_path / "main", number, "state").unlink()
    again = SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    assert again.state == b""
    assert [n for batch in again.history() for n in batch.column("sequence").to_pylist()] == list(range(30))
    again.close()
    segment_path(tmp_path / "main", 1).unlink()
    again = SpoolWriter(tmp_path, "main", cap_bytes=CAP)
    with pytest.raises(SpoolDamaged, match="written twice"):
        _ = again.state
    again.close()
