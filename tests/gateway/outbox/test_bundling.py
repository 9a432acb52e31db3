"""Publications of one commit that go into one batch share a row: one entry, for good, acknowledged one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.contract import BATCH_BYTES, RECORDS_MAX, Chain, Publication, numbers_of, size_of, unpacked
from gateway.data import DataDirectory, StoreError
from gateway.outbox.bundling import bundled
from gateway.outbox.database import StoredRow
from gateway.outbox.store import Store, StoredEntry
from tests.waits import until

pytestmark = pytest.mark.invariant(14)


def row(number: int, chain: str = "plant/#", size: int = 10, frame: bytes = b"") -> StoredRow:
    publication = Publication("plant/a", bytes(size), 1, time_ms=1)
    return StoredRow(number, Chain(chain), 1, frame, publication, size_of(publication))


def test_rows_of_one_scope_become_one_and_what_has_a_frame_stays_in_its_place() -> None:
    rows = [row(1), row(2), row(3, "open/#"), row(4, frame=b"retained"), row(5), row(6, "open/#"), row(7)]
    found = bundled(rows)
    assert [(each.sequence, each.chain.name, each.sequences) for each in found] == [
        (1, "plant/#", (1, 2)),
        (3, "open/#", (3, 6)),
        (4, "plant/#", ()),
        (5, "plant/#", (5, 7)),
    ]
    assert numbers_of(found[3].publication, 5) == (5, 7)


def test_a_batch_has_so_many_records_and_bytes_at_most() -> None:
    many = bundled([row(n) for n in range(1, 2 * RECORDS_MAX + 2)])
    assert [len(each.sequences) for each in many] == [RECORDS_MAX, RECORDS_MAX, 1]
    large = bundled([row(n, size=BATCH_BYTES // 3) for n in range(1, 6)])
    assert [len(each.sequences) for each in large] == [2, 2, 1]
    assert len(bundled([row(1, size=3 * BATCH_BYTES)])) == 1


def test_a_commit_is_one_entry_that_survives_a_restart_and_goes_as_a_whole(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store(DataDirectory.open(tmp_path))
        entries: list[StoredEntry] = []
        store.on_committed = entries.extend
        told: list[StoredEntry | StoreError] = []
        numbers = [
            store.append(Publication(f"plant/{n}", b"%d" % n, 1, time_ms=n), told.append, Chain("plant/#"))
            for n in range(50)
        ]
        await until(lambda: len(told) >= 50)
        assert [entry.sequence for entry in told if isinstance(entry, StoredEntry)] == numbers
        got = [number for entry in entries for number in numbers_of(entry.publication, entry.sequence)]
        assert got == numbers
        assert store.depth == len(entries)
        store.close()
        again = Store(DataDirectory.open(tmp_path))
        page = again.page(0)
        assert [(r.sequence, r.publication) for r in page.rows] == [(e.sequence, e.publication) for e in entries]
        records = [r for each in page.rows for r in unpacked(each.publication.payload, each.sequence)]
        assert [r.publication.payload for r in records] == [b"%d" % n for n in range(50)]  # type: ignore[union-attr]
        again.forget_entries([r.sequence for r in page.rows])
        assert (again.depth, again.held_bytes) == (0, 0)
        again.close()

    asyncio.run(main())


def test_a_run_of_a_client_is_stored_with_what_others_sent_and_is_reported_once(tmp_path: Path) -> None:
    async def main() -> None:
        store, chain = Store(DataDirectory.open(tmp_path)), Chain("plant/#")
        entries: list[StoredEntry] = []
        store.on_committed = entries.extend
        told: list[str] = []
        made = [Publication(f"plant/{n % 3}", b"%d" % n, 1, time_ms=n) for n in range(12)]
        first = store.append(made[0], lambda _: told.append("one"), chain)
        run = store.append(made[1], lambda _: told.append("run"), chain, 400, "meter", made[1:11])
        last = store.append(made[11], lambda _: told.append("last"), chain)
        assert (run, last, store.depth) == (first + 1, first + 11, 12)
        await until(lambda: len(told) == 3)
        assert told == ["one", "run", "last"]
        assert [entry.sequence for entry in entries] == [first]
        records = list(unpacked(entries[0].publication.payload, first))
        assert [(r.number - first, r.publication.payload) for r in records] == [  # type: ignore[union-attr]
            (n, b"%d" % n) for n in range(12)
        ]
        assert store.depth == 1
        store.forget_entries([first])
        assert (store.depth, store.held_bytes) == (0, 0)
        store.close()

    asyncio.run(main())


def test_runs_fill_no_batch_beyond_its_bounds() -> None:
    def rows(*sizes: int) -> list[StoredRow]:
        made, at = list[StoredRow](), 1
        for size in sizes:
            run = [Publication("plant/a", b"x", 1, time_ms=1)] * size
            made.append(StoredRow(at, Chain("plant/#", records=8), 1, b"", run[0], 40 * size, run=run))
            at += size
        return made

    assert [(row.sequence, row.publication.records) for row in bundled(rows(5, 3, 4, 5))] == [(1, 8), (9, 4), (13, 5)]


def test_what_is_retained_stands_between_the_batches_of_its_scope(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store(DataDirectory.open(tmp_path))
        entries: list[StoredEntry] = []
        store.on_committed = entries.extend
        numbers = [
            store.append(Publication("plant/a", b"%d" % n, 1, retain), None, Chain("plant/#"))
            for n, retain in enumerate((False, True, False))
        ]
        await until(lambda: len(entries) >= 3)
        assert [(e.sequence, e.previous) for e in entries] == list(zip(numbers, [0, *numbers], strict=False))
        store.close()

    asyncio.run(main())


def test_what_was_stored_while_nobody_knew_its_scope_is_followed_by_the_scopes_chain(
    tmp_path: Path,
) -> None:
    async def put(store: Store, *topics: str, chain: Chain | None = None) -> list[StoredEntry]:
        entries: list[StoredEntry] = []
        store.on_committed = entries.extend
        for topic in topics:
            store.append(Publication(topic, b"", 1, time_ms=1), None, chain)
        await until(lambda: bool(entries))
        return entries

    async def main() -> None:
        scope, store = Chain("plant/#"), Store(DataDirectory.open(tmp_path))
        (before,) = await put(store, "plant/b", chain=scope)
        (first,) = await put(store, "plant/a")
        assert (before.previous, first.previous) == (0, 0)
        (second,) = await put(store, "plant/b", chain=scope)
        assert second.previous == before.sequence
        (third,) = await put(store, "plant/c", "plant/a", chain=scope)
        assert third.previous == second.sequence > first.sequence, "the scope's last is behind it already"
        (fourth,) = await put(store, "plant/a")
        store.close()
        again = Store(DataDirectory.open(tmp_path))
        (fifth,) = await put(again, "plant/c", "plant/a", chain=scope)
        assert fifth.previous == fourth.sequence > third.sequence
        (sixth,) = await put(again, "plant/c", chain=scope)
        assert sixth.previous == fifth.sequence
        again.close()

    asyncio.run(main())


@pytest.mark.attack(103)
def test_a_row_remembers_whether_its_scope_was_plain(tmp_path: Path) -> None:
    """Over a restart, alone and in a batch; and no batch holds some of both."""

    async def main() -> None:
        store = Store(DataDirectory.open(tmp_path))
        told: list[StoredEntry | StoreError] = []
        sealed, plain = Chain("plant/#"), Chain("plant/#", in_clear=True)
        for chain in (sealed, sealed, plain, plain, sealed):
            store.append(Publication("plant/a", b"x", 1, time_ms=1), told.append, chain)
        for chain in (sealed, plain):
            store.append(Publication("plant/a", b"x", 1, True, time_ms=1), told.append, chain)
        await until(lambda: len(told) >= 7)
        store.close()
        again = Store(DataDirectory.open(tmp_path))
        said = [(r.publication.records, r.publication.in_clear) for r in again.page(0).rows]
        again.close()
        assert said == [(2, False), (2, True), (1, False), (0, False), (0, True)]

    asyncio.run(main())
