"""Publications of one commit that go into one batch share a row: one entry, for good, acknowledged one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bridge.contract import BATCH_BYTES, RECORDS_MAX, Publication, numbers_of, unpacked
from gateway.outbox.bundling import bundled
from gateway.outbox.database import StoredRow
from gateway.outbox.store import Store, StoredEntry, StoreError
from tests.waits import until


def row(number: int, batch: str | None = "plant/#", size: int = 10) -> StoredRow:
    return StoredRow(number, "plant/a", 1, b"", Publication("plant/a", bytes(size), 1, time_ms=1), batch)


def test_rows_of_one_batch_topic_become_one_and_the_others_stay() -> None:
    found = bundled([row(1), row(2, None), row(3, "open/#"), row(4), row(5, "open/#")])
    assert [(each.sequence, each.topic, each.sequences) for each in found] == [
        (1, "plant/#", (1, 4)),
        (2, "plant/a", ()),
        (3, "open/#", (3, 5)),
    ]
    assert numbers_of(found[0].publication, 1) == (1, 4)


def test_a_batch_has_so_many_records_and_bytes_at_most() -> None:
    many = bundled([row(n) for n in range(1, 2 * RECORDS_MAX + 2)])
    assert [len(each.sequences) for each in many] == [RECORDS_MAX, RECORDS_MAX, 1]
    large = bundled([row(n, size=BATCH_BYTES // 3) for n in range(1, 6)])
    assert [len(each.sequences) for each in large] == [2, 2, 1]
    assert len(bundled([row(1, size=3 * BATCH_BYTES)])) == 1


def test_a_commit_is_one_entry_that_survives_a_restart_and_goes_as_a_whole(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store.open(tmp_path)
        entries: list[StoredEntry] = []
        store.on_committed = entries.extend
        told: list[StoredEntry | StoreError] = []
        numbers = [
            store.append(Publication(f"plant/{n}", b"%d" % n, 1, time_ms=n), told.append, "plant/#") for n in range(50)
        ]
        await until(lambda: len(told) >= 50)
        assert [entry.sequence for entry in told if isinstance(entry, StoredEntry)] == numbers
        got = [number for entry in entries for number in numbers_of(entry.publication, entry.sequence)]
        assert got == numbers
        assert store.depth == len(entries)
        store.close()
        again = Store.open(tmp_path)
        page = again.page(0)
        assert [(r.sequence, r.publication) for r in page.rows] == [(e.sequence, e.publication) for e in entries]
        records = [r for each in page.rows for r in unpacked(each.publication.payload, each.sequence)]
        assert [r.publication.payload for r in records] == [b"%d" % n for n in range(50)]  # type: ignore[union-attr]
        again.forget([r.sequence for r in page.rows])
        assert (again.depth, again.held_bytes) == (0, 0)
        again.close()

    asyncio.run(main())


def test_what_travels_alone_follows_the_batch_before_it(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store.open(tmp_path)
        entries: list[StoredEntry] = []
        store.on_committed = entries.extend
        batch = await store_one(store, Publication("plant/a", b"1", 1), "plant/#", None)
        retained = await store_one(store, Publication("plant/a", b"2", 1, True), None, "plant/#")
        after = await store_one(store, Publication("plant/a", b"3", 1), None, None)
        await asyncio.sleep(0.01)
        assert [(e.sequence, e.previous) for e in entries] == [(batch, 0), (retained, batch), (after, retained)]
        store.close()

    asyncio.run(main())


async def store_one(store: Store, publication: Publication, batch: str | None, after: str | None) -> int:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    number = store.append(publication, lambda _: future.set_result(None), batch, after)
    await future
    return number
