"""The day is there after a restart, bounded on disk, and goes on where the disk takes nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.day import FIELDS, DayKeeper
from gateway.day.day_keeper import ALARMS_FILE, FIGURES_FILE
from gateway.day.minutes import MINUTES_MAX, ROW_BYTES
from gateway.health import DEGRADED, Finding
from gateway.health.alarms import Alarms
from tests.gateway.harness import on_loop

NOW = 1_767_323_040.0


class Day:
    """A keeper whose clock is moved by the test."""

    def __init__(self, data: Path | None, at: float = NOW) -> None:
        self.at, self.alarms = at, Alarms()
        self.keeper = DayKeeper(data, lambda: dict.fromkeys(FIELDS, 7.0), self.alarms, lambda: self.at)
        self.keeper.start()

    async def minutes(self, count: int) -> None:
        for _ in range(count):
            self.at += 60
            await self.keeper.take_row()


@on_loop
async def test_rows_and_alarms_are_there_again(tmp_path: Path) -> None:
    day = Day(tmp_path)
    day.alarms.take_findings([Finding(DEGRADED, "disk", "full; make room")], NOW)
    await day.minutes(3)
    await day.keeper.stop()
    after = Day(tmp_path, day.at)
    shown = after.keeper.shown_day()
    assert [row[0] for row in shown["rows"]] == [NOW + 60, NOW + 120, NOW + 180]
    assert dict(zip(shown["fields"], shown["rows"][-1], strict=True))["clients"] == 7.0
    assert [alarm["text"] for alarm in shown["alarms"]] == ["full; make room"]
    await after.keeper.stop()
    assert (tmp_path / ALARMS_FILE).stat().st_mode & 0o077 == 0


@on_loop
async def test_two_days_take_the_room_of_one(tmp_path: Path) -> None:
    day = Day(tmp_path)
    await day.minutes(20)
    day.at += 60 * (MINUTES_MAX - 10)
    await day.minutes(20)
    await day.keeper.stop()
    assert (tmp_path / FIGURES_FILE).stat().st_size <= MINUTES_MAX * ROW_BYTES
    assert len(Day(tmp_path, day.at).keeper.shown_day()["rows"]) == 20


@on_loop
async def test_a_disk_that_takes_nothing_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = tmp_path / "gone"
    day = Day(gone)
    with caplog.at_level(logging.WARNING, "veilmq.day"):
        await day.minutes(2)
        assert len(caplog.records) == 1
        gone.mkdir()
        await day.minutes(1)
        (gone / FIGURES_FILE).unlink()
        gone.rmdir()
        await day.minutes(1)
        assert len(caplog.records) == 2
    assert len(day.keeper.shown_day()["rows"]) == 4
    await day.keeper.stop()


@on_loop
async def test_without_a_data_directory_it_is_in_memory() -> None:
    day = Day(None)
    await day.minutes(2)
    assert len(day.keeper.shown_day()["rows"]) == 2
    await day.keeper.stop()
