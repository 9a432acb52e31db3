"""What the broker does for the overlay: rows are kept with what it delivered, and nothing comes once the end begins."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.contract.machine import Publication
from gateway.sessions import store
from gateway.sessions.batch import PATIENT_MAX
from gateway.sessions.database import SessionDatabase
from tests.gateway.harness import Wire, serving
from tests.gateway.sessions.test_store import store_of
from tests.waits import until

ROWS = [(b"s1", b"one"), (b"k2", b"two"), (b"h3", b"three")]


def test_rows_are_on_disk_before_it_is_said_and_come_back(tmp_path: Path) -> None:
    async def check() -> None:
        config = {"data": str(tmp_path / "data")}
        said: list[str] = []
        async with serving(config) as broker:
            assert broker.kept() == {}
            broker.when_kept(lambda: said.append("nothing to write"))
            assert said == ["nothing to write"]
            broker.keep(ROWS)
            broker.when_kept(lambda: said.append("written"))
            assert len(said) == 1, "not before the commit"
            await until(lambda: len(said) == 2)
            broker.keep([(b"k2", None), (b"s1", b"newer")])
            broker.when_kept(lambda: said.append("at the end"))
        assert said[2:] == ["at the end"], "what waits at the end is written, then said"
        broker.keep([(b"x", b"late")])
        broker.when_kept(lambda: said.append("never"))
        async with serving(config) as again:
            assert dict(again.kept()) == {b"s1": b"newer", b"h3": b"three"}
        assert "never" not in said

    asyncio.run(check())


def test_patient_callers_wait_for_each_other_and_hurry_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENT_S", 60.0)
    commit, commits = SessionDatabase.commit, [0]

    def counted(database: SessionDatabase, changes: Any) -> None:
        commits[0] += 1
        commit(database, changes)

    monkeypatch.setattr(SessionDatabase, "commit", counted)

    async def check() -> None:
        said: list[str] = []
        async with serving({"data": str(tmp_path / "data")}) as broker:
            for name in ("first", "second"):
                broker.keep(ROWS, is_patient=True)
                broker.when_kept(partial(said.append, name), is_patient=True)
            assert store_of(broker)._timer_s == 60.0
            assert (said, commits) == ([], [0])
            broker.when_kept(partial(said.append, "who waits"))
            await until(lambda: len(said) == 3)
            assert (said, commits) == (["who waits", "first", "second"], [1])
            broker.keep(ROWS, is_patient=True)
            for _ in range(PATIENT_MAX):
                broker.when_kept(partial(said.append, "many"), is_patient=True)
            await until(lambda: len(said) == 3 + PATIENT_MAX)
            broker.when_kept(partial(said.append, "at the end"), is_patient=True)
        assert said[-1] == "at the end"

    asyncio.run(check())


def test_a_patient_caller_is_served_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to write, too: a replica does not wait for the next message."""
    monkeypatch.setattr(store, "PATIENT_S", 0.1)

    async def check() -> None:
        said: list[str] = []
        async with serving({"data": str(tmp_path / "data")}) as broker:
            broker.keep(ROWS, is_patient=True)
            broker.when_kept(partial(said.append, "written"), is_patient=True)
            await until(lambda: said == ["written"])
            broker.when_kept(partial(said.append, "nothing to write"), is_patient=True)
            assert len(said) == 1
            await until(lambda: len(said) == 2)

    asyncio.run(check())


def test_what_comes_after_the_end_has_begun_is_not_delivered(tmp_path: Path) -> None:
    """It is not acknowledged either, so it comes again, and once only to a persistent session."""

    async def check() -> None:
        config = {"data": str(tmp_path / "data")}
        keep = {"session_expiry_s": 100}
        async with serving(config) as broker:
            away = await Wire.connect(broker, "away", properties=keep)
            await away.subscribe("t", 1)
            broker.deliver_local(Publication("t", b"in time", 1))
        broker.deliver_local(Publication("t", b"too late", 1))
        async with serving(config) as again:
            back = await Wire.connect(again, "away", clean_start=False, properties=keep)
            assert await back.published() == [("t", b"in time")]

    asyncio.run(check())


def test_without_a_store_nothing_waits() -> None:
    async def check() -> None:
        async with serving() as broker:
            said: list[int] = []
            broker.keep(ROWS)
            broker.when_kept(lambda: said.append(1))
            assert said == [1]
            assert broker.kept() == {}

    asyncio.run(check())
