"""The archive of a replica's history: order, pages, rows, bounds, and what is erased."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract import HistoryKey, HistoryPosition, HistoryRecord, HistoryRequest, Recall, RecordEra
from bridge.document import DAY_S, History
from gateway.history import Archive, HistoryError
from gateway.history import archive as module

KEY = bytes(range(32))
NOW = 1_800_000_000.0
KEPT = {1: History(8, 100)}


def record(number: int, at_ms: int = 0, publisher: int = 1, size: int = 100, scope: int = 1) -> HistoryRecord:
    position = HistoryPosition(int(NOW * 1000) + (at_ms or number), bytes([publisher]) * 16, number, bytes(8))
    return HistoryRecord(scope, position, b"k" * 16, number.to_bytes(4) + bytes(size))


def key(shares: bytes = b"shares") -> HistoryKey:
    return HistoryKey(1, b"k" * 16, b"header", shares)


def numbers(archive: Archive, most: int = 1 << 18, **asked: object) -> list[int]:
    """All that a reader gets, page by page."""
    found: list[int] = []
    request = HistoryRequest(1, 1, 0, 1 << 60, most_bytes=most, **asked)  # type: ignore[arg-type]
    for _ in range(10_000):
        page = archive.read(Recall("desk", request))
        found += [int.from_bytes(each.body[:4]) for each in page.records]
        assert not page.records or page.keys
        if page.upto is None:
            return found
        request = HistoryRequest(1, 1, 0, 1 << 60, page.upto, request.row, most)
    raise AssertionError("no end")


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 3)), min_size=1, max_size=60, unique=True))
def test_pages_have_all_in_order_whatever_came_when(
    tmp_path_factory: pytest.TempPathFactory, came: list[tuple[int, int]]
) -> None:
    archive = Archive(tmp_path_factory.mktemp("h"), KEY)
    archive.write([record(at, at, publisher) for at, publisher in came], [key()], KEPT, NOW)
    assert numbers(archive, most=300) == [at for at, _ in sorted(came)]
    archive.close()


@pytest.mark.long
def test_many_segments_are_one_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 3_000)
    monkeypatch.setattr(module, "OPEN_MAX", 2)
    archive = Archive(tmp_path, KEY)
    for at in range(1, 200):
        archive.write([record(at, at * 7 % 199 + 1)], [key()], KEPT, NOW)
    assert numbers(archive, most=900) == sorted(range(1, 200), key=lambda at: at * 7 % 199 + 1)
    assert len(list(tmp_path.glob("*.segment"))) > 10
    archive.close()
    again = Archive(tmp_path, KEY)
    assert len(numbers(again)) == 199
    again.write([record(500)], [key()], KEPT, NOW)
    assert numbers(again, row=199) == [500]
    again.close()


def test_a_reader_that_asks_for_some_publishers_gets_theirs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 3_000)
    archive = Archive(tmp_path, KEY)
    for at in range(1, 200):
        archive.write([record(at, at * 7 % 199 + 1, publisher=at % 5)], [key()], KEPT, NOW)
    in_order = sorted(range(1, 200), key=lambda at: at * 7 % 199 + 1)
    wanted = bytes([1]) * 16, bytes([4]) * 16, bytes([9]) * 16
    request = HistoryRequest(1, 1, 0, 1 << 60, publishers=wanted)
    page = archive.read(Recall("desk", request))
    assert [int.from_bytes(each.body[:4]) for each in page.records] == [at for at in in_order if at % 5 in (1, 4)]
    archive.close()


def test_what_came_again_counts_once_and_the_longer_stays(tmp_path: Path) -> None:
    archive = Archive(tmp_path, KEY)
    archive.write([record(1, size=10)], [key(b"a")], KEPT, NOW)
    archive.write([record(1, size=50)], [key(b"longer")], KEPT, NOW)
    archive.write([record(1, size=20)], [key(b"c")], KEPT, NOW)
    page = archive.read(Recall("desk", HistoryRequest(1, 1, 0, 1 << 60)))
    assert [len(each.body) for each in page.records] == [54]
    assert [each.shares for each in page.keys] == [b"longer"]
    archive.close()


@pytest.mark.long
def test_who_has_most_loses_its_oldest_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 200_000)
    archive, kept = Archive(tmp_path, KEY), {1: History(8, 16)}
    archive.write([record(at, publisher=2) for at in range(1, 20)], [key()], kept, NOW)
    for at in range(1_000, 1_400):
        archive.write([record(at, size=60_000)], [key()], kept, NOW)
    found = numbers(archive, most=1 << 24)
    assert found[:19] == list(range(1, 20))
    assert 200 < len(found) < 300
    assert found[-1] == 1_399
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20_000_000
    archive.close()


def test_what_is_too_old_is_gone_with_its_key(tmp_path: Path) -> None:
    archive = Archive(tmp_path, KEY)
    archive.write([record(1)], [key()], KEPT, NOW)
    archive.write([record(2, int(DAY_S * 1000))], [key()], KEPT, NOW)  # a part of the days later: another segment
    archive.write([record(3, int(DAY_S * 1000) + 5)], [key()], KEPT, NOW)
    first = (tmp_path / "1.segment").read_bytes()
    archive.write([record(4, int(9.5 * DAY_S * 1000))], [key()], KEPT, NOW + 9.5 * DAY_S)
    assert numbers(archive) == [3, 4] or numbers(archive) == [4]
    assert not (tmp_path / "1.segment").exists()
    assert not list(tmp_path.glob("1.segment*"))
    archive.close()
    sealed = [each[2] for each in sqlite3.connect(tmp_path / "catalogue.db").execute("SELECT * FROM segments")]
    assert all(each not in first for each in sealed)


def test_nothing_is_readable_on_the_disk(tmp_path: Path) -> None:
    archive = Archive(tmp_path, KEY)
    marked = HistoryRecord(1, record(1).position, b"k" * 16, b"in clear at the replica" * 3)
    archive.write([marked], [key(b"the shares of it")], KEPT, NOW)
    archive.close()
    for path in tmp_path.iterdir():
        assert b"in clear" not in path.read_bytes()
        assert b"the shares" not in path.read_bytes()


def test_another_store_key_opens_nothing(tmp_path: Path) -> None:
    archive = Archive(tmp_path, KEY)
    archive.write([record(1)], [key()], KEPT, NOW)
    archive.close()
    with pytest.raises(HistoryError, match="cannot be opened"):
        Archive(tmp_path, bytes(32))


def test_a_scope_without_a_history_any_more_is_erased(tmp_path: Path) -> None:
    archive = Archive(tmp_path, KEY)
    archive.write([record(1), record(2, scope=9)], [key()], KEPT, NOW)
    assert [reach.scope for reach in archive.reach()] == [1]
    archive.erase_outdated({}, NOW)
    assert archive.reach() == []
    assert not list(tmp_path.glob("*.segment*"))
    archive.close()


def eras(archive: Archive, from_ms: int) -> Sequence[tuple[int, bytes]]:
    return archive.read(Recall("desk", HistoryRequest(1, from_ms=from_ms, eras=True))).eras


def test_eras_are_kept_once_each_with_their_documents(tmp_path: Path) -> None:
    archive = Archive(tmp_path, KEY)
    for time_ms, digest in ((10, b"a"), (20, b"a"), (30, b"b")):
        archive.write_era(RecordEra(time_ms, digest * 32, b"document " + digest))
    assert eras(archive, 5) == [(10, b"a" * 32), (30, b"b" * 32)]
    assert eras(archive, 35) == [(30, b"b" * 32)]
    page = archive.read(Recall("desk", HistoryRequest(1, digest=b"a" * 32)))
    assert page.document == b"document a"
    archive.close()


def test_only_the_user_of_the_process_reads_the_files(tmp_path: Path) -> None:
    archive = Archive(tmp_path, KEY)
    archive.write([record(1)], [key()], KEPT, NOW)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) >= 2
    assert set(modes.values()) == {0o600}, modes
    archive.close()
