"""What the broker does for the overlay: rows are kept with what it delivered, and nothing comes once the end begins."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.contract.machine import Publication
from gateway.mqtt5.packets import PubAck, Publish, Version
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
            assert broker.local.kept_rows() == {}
            broker.local.when_kept(lambda: said.append("nothing to write"))
            assert said == ["nothing to write"]
            broker.local.keep_rows(ROWS)
            broker.local.when_kept(lambda: said.append("written"))
            assert len(said) == 1, "not before the commit"
            await until(lambda: len(said) == 2)
            broker.local.keep_rows([(b"k2", None), (b"s1", b"newer")])
            broker.local.when_kept(lambda: said.append("at the end"))
        assert said[2:] == ["at the end"], "what waits at the end is written, then said"
        broker.local.keep_rows([(b"x", b"late")])
        broker.local.when_kept(lambda: said.append("never"))
        async with serving(config) as again:
            assert dict(again.local.kept_rows()) == {b"s1": b"newer", b"h3": b"three"}
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
                broker.local.keep_rows(ROWS, is_patient=True)
                broker.local.when_kept(partial(said.append, name), is_patient=True)
            assert store_of(broker)._timer_s == 60.0
            assert (said, commits) == ([], [0])
            broker.local.when_kept(partial(said.append, "who waits"))
            await until(lambda: len(said) == 3)
            assert (said, commits) == (["who waits", "first", "second"], [1])
            broker.local.keep_rows(ROWS, is_patient=True)
            for _ in range(PATIENT_MAX):
                broker.local.when_kept(partial(said.append, "many"), is_patient=True)
            await until(lambda: len(said) == 3 + PATIENT_MAX)
            broker.local.when_kept(partial(said.append, "at the end"), is_patient=True)
        assert said[-1] == "at the end"

    asyncio.run(check())


def test_a_patient_caller_is_served_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to write, too: a replica does not wait for the next message."""
    monkeypatch.setattr(store, "PATIENT_S", 0.1)

    async def check() -> None:
        said: list[str] = []
        async with serving({"data": str(tmp_path / "data")}) as broker:
            broker.local.keep_rows(ROWS, is_patient=True)
            broker.local.when_kept(partial(said.append, "written"), is_patient=True)
            await until(lambda: said == ["written"])
            broker.local.when_kept(partial(said.append, "nothing to write"), is_patient=True)
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
            broker.local.deliver_local(Publication("t", b"in time", 1))
        broker.local.deliver_local(Publication("t", b"too late", 1))
        broker.local.deliver_run([Publication("t", b"too late", 1)])
        async with serving(config) as again:
            back = await Wire.connect(again, "away", clean_start=False, properties=keep)
            assert await back.published() == [("t", b"in time")]

    asyncio.run(check())


def test_a_run_reaches_each_receiver_in_order_whatever_is_in_it(tmp_path: Path) -> None:
    """A window that is full, a persistent session, QoS 0, a retained value and a property do not change the order."""

    async def check() -> None:
        said = [Publication("t/1", b"%d" % n, 1) for n in range(5)]
        said += [Publication("t/1", b"5", 0), Publication("t/2", b"6", 2), Publication("t/2", b"7", 1, True)]
        said += [
            Publication("t/1", b"8", 1, properties=(("k", "v"),)),
            *(Publication("t/1", b"%d" % n, 1) for n in (9, 10)),
        ]
        async with serving({"data": str(tmp_path / "data")}) as broker:
            plain, old = await Wire.connect(broker, "plain"), await Wire.connect(broker, "old", Version.V311)
            narrow = await Wire.connect(broker, "narrow", properties={"receive_maximum": 2})
            kept = await Wire.connect(broker, "kept", properties={"session_expiry_s": 100})
            for wire in (plain, old, narrow, kept):
                await wire.subscribe("t/#", 1)
            broker.local.deliver_run(said)
            whole = [(each.topic, each.payload) for each in said]
            assert await plain.published() == await old.published() == await kept.published() == whole
            first = [await narrow.expect(Publish) for _ in range(2)]
            assert [each.payload for each in first] == [b"0", b"1"]
            got = list(first)
            while len(got) < 10:  # QoS 0 does not wait for the window
                narrow.send(*(PubAck(each.packet_id) for each in got[-2:] if each.qos))
                got.append(await narrow.expect(Publish))
            assert [int(each.payload) for each in got if each.qos] == [0, 1, 2, 3, 4, 6, 7, 8, 9]

    asyncio.run(check())


def test_without_a_store_nothing_waits() -> None:
    async def check() -> None:
        async with serving() as broker:
            said: list[int] = []
            broker.local.keep_rows(ROWS)
            broker.local.when_kept(lambda: said.append(1))
            assert said == [1]
            assert broker.local.kept_rows() == {}

    asyncio.run(check())
