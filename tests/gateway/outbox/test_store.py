"""The store survives kill -9 and full disks: nothing acknowledged is lost, no number is used twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from bridge.contract import Chain
from bridge.contract.machine import Publication
from gateway.data import DataDirectory, NoRoomError, StoreError
from gateway.outbox import store as outbox_store
from gateway.outbox.database import SEQUENCE_BLOCK
from gateway.outbox.store import SWITCH_S, Store, StoredEntry
from tests import forking
from tests.waits import until, wait_until


@pytest.fixture(autouse=True)
def _the_disk_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_store, "RETRY_S", 0.02)


async def taken(store: Store, publication: Publication) -> StoredEntry:
    """Appends as soon as the disk takes again."""
    found: list[StoredEntry] = []

    def append() -> bool:
        with contextlib.suppress(StoreError):
            store.append(publication, lambda result: found.append(result) if isinstance(result, StoredEntry) else None)
            return True
        return False

    await until(append)
    await until(lambda: bool(found))
    return found[0]


def run_with(directory: Path, use: Callable[[Store], Awaitable[None]], **options: int) -> None:
    async def main() -> None:
        store = Store(DataDirectory.open(directory), **options)
        try:
            await use(store)
        finally:
            store.close()

    asyncio.run(main())


def on_disk(store: Store, start: int = 0) -> list[StoredEntry]:
    """What is on disk, in hand or not, in order."""
    found: list[StoredEntry] = []
    at: int | None = start
    while at is not None:
        page = store._outbox.page(at, store._deleting.__contains__)
        if page.damaged is not None:
            raise page.damaged
        found += [StoredEntry(row.sequence, row.previous, row.publication) for row in page.rows]
        at = page.following
    return found


def message(topic: str = "a/b", payload: bytes = b"x", qos: int = 1) -> Publication:
    return Publication(topic, payload, qos=qos, time_ms=1)


def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    stored: list[StoredEntry] = []

    async def first(store: Store) -> None:
        stored.extend([await store.put_publication(message(payload=b"%d" % n)) for n in range(5)])
        store.forget_entries([stored[1].sequence, 999_999_999])

    async def second(store: Store) -> None:
        assert on_disk(store) == [e for e in stored if e is not stored[1]]
        assert store.depth == 4
        assert on_disk(store, stored[4].sequence) == [stored[4]]

    run_with(tmp_path, first)
    run_with(tmp_path, second)


def test_appends_are_reported_in_order_and_as_groups(tmp_path: Path) -> None:
    reported: list[int] = []
    groups: list[int] = []

    async def use(store: Store) -> None:
        done = asyncio.Event()

        def on_committed(entries: object) -> None:
            groups.append(len(entries))  # type: ignore[arg-type]
            if sum(groups) == 2000:
                done.set()

        store.on_committed = on_committed
        sequences = [
            store.append(message(), lambda e: reported.append(e.sequence if isinstance(e, StoredEntry) else -1))
            for _ in range(2000)
        ]
        await done.wait()
        assert reported == sequences == sorted(set(sequences))

    run_with(tmp_path, use)
    assert len(groups) < 1000  # one fsync pays for many


def test_appends_of_one_turn_of_the_loop_are_one_commit(tmp_path: Path) -> None:
    commits: list[int] = []

    async def main() -> None:
        store = Store(DataDirectory.open(tmp_path / "data"))
        store.on_committed = lambda entries: commits.append(len(entries))
        try:
            loop = asyncio.get_running_loop()
            futures: list[asyncio.Future[object]] = [loop.create_future() for _ in range(50)]
            for n, future in enumerate(futures):
                store.append(Publication(f"t/{n}", b"x", 1), future.set_result)
            await asyncio.gather(*futures)
            await asyncio.sleep(0)
        finally:
            store.close()

    asyncio.run(main())
    assert commits == [50]


def test_what_was_appended_in_this_turn_is_written_before_the_store_closes(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store(DataDirectory.open(tmp_path / "data"))
        store.append(Publication("t", b"x", 1))
        store.close()

    asyncio.run(main())
    store = Store(DataDirectory.open(tmp_path / "data"))
    assert store.depth == 1
    store.close()


def test_previous_names_the_preceding_stored_qos1_publication_of_the_topic(tmp_path: Path) -> None:
    last: list[StoredEntry] = []

    async def first(store: Store) -> None:
        a1 = await store.put_publication(message("a"))
        b1 = await store.put_publication(message("b"))
        a0 = await store.put_publication(message("a", qos=0))
        a2 = await store.put_publication(message("a", qos=2))
        assert (a1.previous, b1.previous) == (0, 0)
        assert (a0.previous, a2.previous) == (a1.sequence, a1.sequence)
        store.forget_entries([a1.sequence, a2.sequence])
        last.append(a2)

    async def second(store: Store) -> None:
        assert (await store.put_publication(message("a"))).previous == last[0].sequence

    run_with(tmp_path, first)
    run_with(tmp_path, second)


def test_numbers_only_rise(tmp_path: Path) -> None:
    seen: list[int] = []

    async def use(store: Store) -> None:
        seen.append(store.next_sequence())
        assert (await store.put_publication(message())).sequence == seen[-1] + 1

    for _ in range(3):
        run_with(tmp_path, use)
    assert seen[1] >= seen[0] + SEQUENCE_BLOCK
    assert seen[2] >= seen[1] + SEQUENCE_BLOCK


def test_more_numbers_than_a_block_in_one_life(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        numbers = set()
        for n in range(SEQUENCE_BLOCK + 1000):
            numbers.add(store.next_sequence())
            if n == SEQUENCE_BLOCK // 2 + 10:
                await store.put_publication(message())  # the reservation is committed before this
        assert len(numbers) == SEQUENCE_BLOCK + 1000

    run_with(tmp_path, use)


def test_full_by_configuration_refuses_new_keeps_old_and_recovers(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        entry = await store.put_publication(message(payload=bytes(600)))
        with pytest.raises(NoRoomError, match="restore the uplink") as caught:
            store.append(message(payload=bytes(600)))
        assert caught.value.code == 0x97
        assert [e.sequence for e in on_disk(store)] == [entry.sequence]
        store.forget_entries([entry.sequence])
        await store.put_publication(message(payload=bytes(600)))

    run_with(tmp_path, use, max_bytes=1000)


def test_a_full_disk_is_one_line_and_the_store_goes_on(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        first = await store.put_publication(message(payload=b"kept"))
        db = store._outbox._writer
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(NoRoomError, match="disk is full; free some space"):
            await store.put_publication(message(payload=bytes(100_000)))
        assert store.depth == 1
        db.execute("PRAGMA max_page_count = 1000000")
        second = await taken(store, message(payload=bytes(100_000)))
        assert second.previous == first.sequence  # what was rolled back is nobody's predecessor
        assert [e.sequence for e in on_disk(store)] == [first.sequence, second.sequence]

    run_with(tmp_path, use)


def test_what_was_appended_before_a_refusal_was_known_does_not_overtake_what_was_refused(tmp_path: Path) -> None:
    """The disk takes the second group. The client of both repeats both, the first of them first."""

    async def use(store: Store) -> None:
        commit, writes = store._outbox.commit, threading.Event()
        results: list[object] = []

        def refuse_once(*_: object) -> tuple[int, int] | None:
            store._outbox.commit = commit  # type: ignore[method-assign]
            assert writes.wait(10)
            raise NoRoomError("disk is full")

        await store.put_publication(message())
        store._outbox.commit = refuse_once  # type: ignore[method-assign]
        store.append(message(), results.append)
        await until(lambda: store._outbox.commit == commit)
        store.append(message(), results.append)  # handed to the writer while the first is written
        await asyncio.sleep(0)
        writes.set()
        await until(lambda: len(results) == 2)
        assert [type(result) for result in results] == [NoRoomError, NoRoomError]
        await taken(store, message())
        assert len(on_disk(store)) == 2

    run_with(tmp_path, use)


def test_a_run_that_the_disk_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        commit, results = store._outbox.commit, list[object]()

        def refuse_once(*_: object) -> tuple[int, int] | None:
            store._outbox.commit = commit  # type: ignore[method-assign]
            raise NoRoomError("disk is full")

        store._outbox.commit = refuse_once  # type: ignore[method-assign]
        store.append(message(), results.append, Chain("t"), 300, "c", [message()] * 9)
        assert store.depth == 9
        await until(lambda: len(results) == 1)
        assert (type(results[0]), store.depth, store.held_bytes) == (NoRoomError, 0, 0)

    run_with(tmp_path, use)


def test_after_a_refusal_of_the_disk_nothing_is_taken_before_a_write_succeeds(tmp_path: Path) -> None:
    """Local clients get what is taken at once: one that repeats a refused publication each second would tell them each
    second."""

    async def use(store: Store) -> None:
        commit, tried = store._outbox.commit, [0]

        def refuse(*_: object) -> None:
            tried[0] += 1
            raise NoRoomError("disk is full")

        store._outbox.commit = refuse  # type: ignore[assignment]
        with pytest.raises(NoRoomError):
            await store.put_publication(message())
        for times in range(2, 5):
            with pytest.raises(NoRoomError, match="disk is full"):
                store.append(message())
            await until(lambda times=times: tried[0] >= times)  # type: ignore[misc]
        store._outbox.commit = commit  # type: ignore[method-assign]
        await taken(store, message())

    run_with(tmp_path, use)


def test_a_deletion_that_the_disk_refused_is_made_later(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        entry = await store.put_publication(message())
        commit = store._outbox.commit

        def refuse(*_: object) -> None:
            raise NoRoomError("disk is full")

        store._outbox.commit = refuse  # type: ignore[assignment]
        store.forget_entries([entry.sequence])
        with pytest.raises(NoRoomError):
            await store.put_publication(message())
        store._outbox.commit = commit  # type: ignore[method-assign]
        await taken(store, message())

    run_with(tmp_path, use)
    db = sqlite3.connect(tmp_path / "outbox.sqlite3")
    assert db.execute("SELECT count(*) FROM outbox").fetchone() == (1,)
    db.close()


def test_a_busy_event_loop_cannot_keep_the_writer_from_its_turn(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    try:
        for interval, kept in ((0.005, SWITCH_S), (SWITCH_S / 2, SWITCH_S / 2)):
            sys.setswitchinterval(interval)
            Store(DataDirectory.open(tmp_path)).close()
            assert sys.getswitchinterval() == pytest.approx(kept)
    finally:
        sys.setswitchinterval(before)


def deletions(store: Store) -> tuple[list[list[int]], asyncio.Event]:
    """What each commit that deletes anything deletes, and an event that the first one sets."""
    commit, loop = store._outbox.commit, asyncio.get_running_loop()
    seen: list[list[int]] = []
    made = asyncio.Event()

    def noted(rows: object, gone: Iterable[int], *rest: object) -> object:
        if gone := list(gone):
            seen.append(gone)
            loop.call_soon_threadsafe(made.set)
        return commit(rows, gone, *rest)  # type: ignore[arg-type]

    store._outbox.commit = noted  # type: ignore[assignment,method-assign]
    return seen, made


def test_deletions_wait_for_an_append_to_go_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.outbox.store.FORGET_WITHIN_S", 3600.0)

    async def use(store: Store) -> None:
        entries = [await store.put_publication(message()) for _ in range(3)]
        seen, _ = deletions(store)
        for entry in entries:
            store.forget_entries([entry.sequence])
        assert store.depth == 0  # there is room at once
        last = await store.put_publication(message())
        assert seen == [[entry.sequence for entry in entries]]
        store.forget_entries([last.sequence])  # on disk at the latest when the store closes

    run_with(tmp_path, use)
    db = sqlite3.connect(tmp_path / "outbox.sqlite3")
    assert db.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    db.close()


def test_deletions_without_an_append_are_soon_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.outbox.store.FORGET_WITHIN_S", 0.0)

    async def use(store: Store) -> None:
        entry = await store.put_publication(message())
        seen, made = deletions(store)
        store.forget_entries([entry.sequence])
        await asyncio.wait_for(made.wait(), 5)
        assert seen == [[entry.sequence]]

    run_with(tmp_path, use)


def test_nothing_readable_and_nothing_open_to_others_on_disk(tmp_path: Path) -> None:
    directory = tmp_path / "data"

    async def use(store: Store) -> None:
        await store.put_publication(message("ward/7/patient", b"very secret reading"))
        for path in directory.rglob("*"):
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
            if path.is_file() and path.name != "store.key":
                assert b"secret" not in path.read_bytes()
                assert b"patient" not in path.read_bytes()

    run_with(directory, use)


def test_a_row_moved_to_another_number_is_refused(tmp_path: Path) -> None:
    async def first(store: Store) -> None:
        await store.put_publication(message())

    async def second(store: Store) -> None:
        with pytest.raises(StoreError, match="damaged"):
            on_disk(store)

    run_with(tmp_path, first)
    db = sqlite3.connect(tmp_path / "outbox.sqlite3", isolation_level=None)
    db.execute("UPDATE outbox SET sequence = sequence + 7")
    db.close()
    run_with(tmp_path, second)


def test_a_store_that_cannot_be_opened_gives_its_directory_back(tmp_path: Path) -> None:
    Store(DataDirectory.open(tmp_path)).close()
    with sqlite3.connect(tmp_path / "outbox.sqlite3") as db:
        db.execute("UPDATE facts SET value = 'x' WHERE name = 'life'")
    for _ in range(2):
        with pytest.raises(StoreError, match="the stored life is damaged"):
            Store(DataDirectory.open(tmp_path))


def test_a_disk_that_goes_bad_while_we_run_lets_nothing_overtake_and_page_tells_why(tmp_path: Path) -> None:
    """SQLite's own errors would end whatever asked, in the middle of an event."""

    async def use(store: Store) -> None:
        (kept,) = [await store.put_publication(message())]
        store.leave_on_disk(kept.sequence)
        db = sqlite3.connect(tmp_path / "outbox.sqlite3", isolation_level=None)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        db.close()
        with (tmp_path / "outbox.sqlite3").open("r+b") as file:
            size = file.seek(0, 2)
            file.seek(page_bytes)
            file.write(b"\xff" * (size - page_bytes))
        assert store.is_left_on_disk(kept.sequence), "so what follows it waits"
        assert store.first_from(0) == (0, 0), "there is something to look at"
        assert store.last_of_chain("a/b") == 0
        with pytest.raises(StoreError, match="damaged"):
            store.page(0)

    run_with(tmp_path, use)


CHILD = """
import asyncio, os, pathlib, sys
from gateway.data import DataDirectory
from gateway.outbox.store import Store, StoredEntry
from bridge.contract.machine import Publication

async def main():
    store = Store(DataDirectory.open(pathlib.Path(sys.argv[1])))
    def done(entry):
        assert isinstance(entry, StoredEntry)
        os.write(1, b"%d %s\\n" % (entry.sequence, entry.publication.payload))
    n = 0
    while True:
        for _ in range(50):
            store.append(Publication("t/%d" % (n % 3), b"%d" % n, qos=1), done)
            n += 1
        await asyncio.sleep(0.001)
asyncio.run(main())
"""


def test_kill_9_loses_nothing_acknowledged_and_reuses_no_number(tmp_path: Path) -> None:
    dice = random.Random(7)
    used: set[int] = set()
    acknowledged: dict[int, bytes] = {}
    for life in range(3):
        said, enough = tmp_path.with_name(f"{tmp_path.name}-said-{life}"), dice.randrange(1, 3000)
        child = forking.run(["-c", CHILD, str(tmp_path)], None, os.environ, said, said)
        assert wait_until(lambda said=said, enough=enough: said.read_bytes().count(b"\n") >= enough, every_s=0.002)  # type: ignore[misc]
        child.kill()
        child.wait()
        lines = said.read_bytes().splitlines(keepends=True)
        if not lines[-1].endswith(b"\n"):
            del lines[-1]
        for line in lines:
            number, payload = line.split()
            assert int(number) not in used
            used.add(int(number))
            acknowledged[int(number)] = payload

    async def check(store: Store) -> None:
        held = {e.sequence: e for e in on_disk(store)}
        assert {s: held[s].publication.payload for s in acknowledged} == acknowledged
        assert store.next_sequence() > max(held)
        for entry in held.values():  # every chain is unbroken: a predecessor is on disk too
            assert entry.previous == 0 or held[entry.previous].publication.topic == entry.publication.topic

    run_with(tmp_path, check)
