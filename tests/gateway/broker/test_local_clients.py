"""What the broker does for the overlay: rows are kept with what it delivered, and nothing comes once the end begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bridge.contract.machine import Publication
from tests.gateway.harness import Wire, serving
from tests.waits import until

ROWS = [(b"s1", b"one"), (b"k2", b"two"), (b"h3", b"three")]


def test_rows_are_on_disk_before_it_is_said_and_come_back(tmp_path: Path) -> None:
    async def check() -> None:
        config = {"data": str(tmp_path / "data")}
        said: list[str] = []
        async with serving(config) as broker:
            assert broker.local.kept() == {}
            broker.local.when_kept(lambda: said.append("nothing to write"))
            assert said == ["nothing to write"]
            broker.local.keep(ROWS)
            broker.local.when_kept(lambda: said.append("written"))
            assert len(said) == 1, "not before the commit"
            await until(lambda: len(said) == 2)
            broker.local.keep([(b"k2", None), (b"s1", b"newer")])
            broker.local.when_kept(lambda: said.append("at the end"))
        assert said[2:] == ["at the end"], "what waits at the end is written, then said"
        broker.local.keep([(b"x", b"late")])
        broker.local.when_kept(lambda: said.append("never"))
        async with serving(config) as again:
            assert dict(again.local.kept()) == {b"s1": b"newer", b"h3": b"three"}
        assert "never" not in said

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
        async with serving(config) as again:
            back = await Wire.connect(again, "away", clean_start=False, properties=keep)
            assert await back.published() == [("t", b"in time")]

    asyncio.run(check())


def test_without_a_store_nothing_waits() -> None:
    async def check() -> None:
        async with serving() as broker:
            said: list[int] = []
            broker.local.keep(ROWS)
            broker.local.when_kept(lambda: said.append(1))
            assert said == [1]
            assert broker.local.kept() == {}

    asyncio.run(check())
