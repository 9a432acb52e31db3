"""The keeper of a history: written behind the traffic; a disk that refuses stops it alone, and it goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bridge.contract import Count, Event, HistoryPosition, HistoryRecord, HistoryRequest, Recall, Recalled, Record
from bridge.document import History
from gateway.history import HistoryKeeper
from gateway.history.archive import Archive
from tests.waits import until

KEPT = {1: History(8, 100)}


def record(at: int) -> Record:
    position = HistoryPosition(1_800_000_000_000 + at, bytes(16), at, bytes(8))
    return Record((HistoryRecord(1, position, b"k" * 16, b"body"),), ())


class Shell:
    def __init__(self, directory: Path) -> None:
        self.events: list[Event] = []
        self.lost = 0
        self.now = 1_800_000_000.0
        self.keeper = HistoryKeeper(
            directory, lambda: bytes(32), lambda: KEPT, self.events.append, self.count, lambda: self.now
        )

    def count(self, count: Count) -> None:
        self.lost += count.amount * (count.name == "history_lost")

    async def read(self) -> int:
        before = len(self.events)
        self.keeper.recall(Recall("desk", HistoryRequest(1, 1, 0, 1 << 60)))
        await until(lambda: len(self.events) > before)
        event = self.events[-1]
        assert isinstance(event, Recalled)
        return len(event.records)


def test_what_was_written_is_read_also_by_the_next_process(tmp_path: Path) -> None:
    async def check() -> None:
        shell = Shell(tmp_path)
        for at in range(1, 6):
            shell.keeper.write_record(record(at))
        assert await shell.read() == 5
        await until(lambda: bool(shell.keeper.reach))
        shell.keeper.close()
        again = Shell(tmp_path)
        assert await again.read() == 5
        again.keeper.close()

    asyncio.run(check())


def test_a_process_without_new_records_says_how_far_it_reaches_and_one_without_a_history_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        shell = Shell(tmp_path / "kept")
        shell.keeper.write_record(record(7))
        assert await shell.read() == 1
        shell.keeper.close()
        again = Shell(tmp_path / "kept")
        again.keeper.tidy()
        await until(lambda: bool(again.keeper.reach))
        assert again.keeper.reach[0].first_ms == 1_800_000_000_007
        again.keeper.close()
        monkeypatch.delitem(KEPT, 1)
        none = Shell(tmp_path / "none")
        none.keeper.tidy()
        none.keeper.close()
        assert not (tmp_path / "none").exists()

    asyncio.run(check())


def test_a_full_disk_stops_the_history_alone_and_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        shell = Shell(tmp_path)
        shell.keeper.write_record(record(1))
        assert await shell.read() == 1
        with monkeypatch.context() as full:
            full.setattr(Archive, "write", refuse)
            shell.keeper.write_record(record(2))
            await until(lambda: bool(shell.keeper.refused))
        shell.keeper.write_record(record(3))  # not tried again at once
        assert await shell.read() == 1
        assert shell.lost == 2
        shell.now += 60
        shell.keeper.write_record(record(4))
        await until(lambda: not shell.keeper.refused)
        assert await shell.read() == 2
        shell.keeper.close()

    asyncio.run(check())


def test_a_history_that_cannot_be_opened_answers_with_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        (tmp_path / "catalogue.db").write_bytes(b"no database at all" * 100)
        shell = Shell(tmp_path)
        assert await shell.read() == 0
        assert "cannot be opened" in shell.keeper.refused
        shell.keeper.close()

    asyncio.run(check())


def refuse(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.attack(192)
def test_a_publisher_that_is_faster_than_the_disk_takes_no_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: one client publishes more than the disk takes, and what others publish is missing in the history."""

    async def check() -> None:
        monkeypatch.setattr("gateway.history.keeper.WAITING_BYTES_MAX", 40)
        shell = Shell(tmp_path)
        for at in range(1, 21):  # four bytes each, and nothing is written before this turn ends
            shell.keeper.write_record(record(at))
        assert shell.lost == 15, "one alone has as much as it leaves free"
        of_other = HistoryRecord(1, HistoryPosition(1_800_000_000_099, bytes([1] * 16), 1, bytes(8)), b"k", b"body")
        shell.keeper.write_record(Record((of_other, *record(30).records), ()))
        assert shell.lost == 16
        assert await shell.read() == 6
        shell.keeper.write_record(record(31))
        assert await shell.read() == 7
        assert shell.lost == 16
        shell.keeper.close()

    asyncio.run(check())
