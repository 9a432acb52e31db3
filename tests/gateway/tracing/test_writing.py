"""Changes of the tracing file beside the event loop: one commit a turn, nothing lost by a kill, nobody held up."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.tracing import writing
from gateway.tracing.store import TraceStore, TraceStoreError
from gateway.tracing.writing import TraceWriter
from tests import forking
from tests.bridge.traces.test_tracer import NOW_MS, advertised
from tests.gateway.overlay_processes import ENVIRONMENT
from tests.waits import wait_until

ADVERTISED = [advertised(f"e{number}", topic=number.to_bytes(16)) for number in range(1, 61)]


class Disk(TraceStore):
    """A store that counts transactions, and takes none before it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may, self.sizes = threading.Event(), list[int]()
        self.may.set()

    def write(self, advertisements: Mapping[bytes, Any], entities: Mapping[bytes, Any]) -> None:
        assert self.may.wait(30)
        self.sizes.append(len(advertisements) + len(entities))
        super().write(advertisements, entities)


def kept(path: Path) -> set[bytes]:
    with sqlite3.connect(path) as database:
        return {topic for (topic,) in database.execute("SELECT topic FROM advertisements")}


async def turns_passed() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def raise_(error: Exception) -> None:
    raise error


def test_changes_of_a_turn_are_one_transaction(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "traces.sqlite3")

    async def turn() -> None:
        writer = TraceWriter(disk, raise_)
        for each in ADVERTISED:
            writer.keep_advertisement(each)
        writer.forget_topic(ADVERTISED[0].topic)
        done = asyncio.Event()
        writer.when_written(done.set)
        await asyncio.wait_for(done.wait(), 30)
        assert disk.sizes == [len(ADVERTISED)]
        assert kept(tmp_path / "traces.sqlite3") == {each.topic for each in ADVERTISED[1:]}
        writer.close()

    asyncio.run(turn())


def test_a_slow_disk_holds_up_nobody_and_tells_nothing_too_early(tmp_path: Path) -> None:
    disk, told = Disk(tmp_path / "traces.sqlite3"), list[str]()
    disk.may.clear()

    async def turns() -> None:
        writer = TraceWriter(disk, raise_)
        writer.keep_advertisement(ADVERTISED[0])
        writer.when_written(partial(told.append, "first"))
        await turns_passed()  # the loop goes on, the first write does not
        writer.when_written(partial(told.append, "first again"))
        writer.keep_advertisement(ADVERTISED[1])
        writer.when_written(partial(told.append, "second"))
        await turns_passed()
        assert told == []
        disk.may.set()
        writer.close()
        assert told == ["first", "first again", "second"]
        assert disk.sizes == [1, 1]

    asyncio.run(turns())
    assert kept(tmp_path / "traces.sqlite3") == {each.topic for each in ADVERTISED[:2]}


def test_more_changes_than_are_kept_in_memory_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PENDING_MAX", 8)
    disk = Disk(tmp_path / "traces.sqlite3")

    async def turn() -> None:
        writer = TraceWriter(disk, raise_)
        for each in ADVERTISED:
            writer.keep_advertisement(each)
        writer.close()

    asyncio.run(turn())
    assert max(disk.sizes) == 8
    assert kept(tmp_path / "traces.sqlite3") == {each.topic for each in ADVERTISED}


def test_a_disk_that_takes_nothing_is_said_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    store, said, told = TraceStore(tmp_path / "traces.sqlite3"), list[TraceStoreError](), list[str]()
    with sqlite3.connect(tmp_path / "traces.sqlite3") as database:
        database.execute("DROP TABLE advertisements")

    async def turn() -> None:
        writer = TraceWriter(store, said.append)
        writer.keep_advertisement(ADVERTISED[0])
        writer.when_written(partial(told.append, "first"))
        writer.close()

    asyncio.run(turn())
    assert told == ["first"]
    assert ["advertisements" in str(error) for error in said] == [True]


KILLED = """
import asyncio, pathlib, sys
from gateway.tracing.store import TraceStore
from gateway.tracing.writing import TraceWriter
from tests.gateway.tracing.test_writing import ADVERTISED

async def main():
    writer = TraceWriter(TraceStore(pathlib.Path(sys.argv[1])), print)
    for each in ADVERTISED:
        writer.keep_advertisement(each)
        writer.when_written(lambda topic=each.topic: print(topic.hex(), flush=True))
        await asyncio.sleep(0)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 30])
def test_what_somebody_was_told_of_outlives_a_kill(tmp_path: Path, after: int) -> None:
    path, said = tmp_path / "traces.sqlite3", tmp_path / "said"
    process = forking.run(["-c", KILLED, str(path)], None, ENVIRONMENT, said, said)
    assert wait_until(lambda: said.read_text().count("\n") >= after)
    process.kill()
    process.wait()
    told = [line.strip() for line in said.read_text().splitlines(keepends=True) if line.endswith("\n")]
    store = TraceStore(path)
    found = {each.topic.hex() for each in store.advertisements(NOW_MS)}
    store.close()
    assert set(told) <= found
    assert len(told) >= after


def test_changes_that_come_during_a_write_are_written_behind_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "traces.sqlite3")
    steps: list[Callable[[], None]] = []

    async def turns() -> None:
        writer = TraceWriter(disk, raise_)
        for each in ADVERTISED[:10]:
            writer.keep_advertisement(each)
            await asyncio.sleep(0)
        done = asyncio.Event()
        writer.when_written(done.set)
        await asyncio.wait_for(done.wait(), 30)
        assert kept(tmp_path / "traces.sqlite3") == {each.topic for each in ADVERTISED[:10]}
        writer.when_written(partial(steps.append, done.clear))
        assert steps, "nothing is left to wait for"
        writer.close()

    asyncio.run(turns())
