"""What follows a batch of its scope waits a moment, and a lone publication for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.contract import Chain, Publication, count_of, size_of
from gateway.data import DataDirectory
from gateway.outbox.database import StoredRow
from gateway.outbox.lingering import Lingering
from gateway.outbox.store import Store, StoredEntry
from tests.waits import until

CHAIN = Chain("plant/#", 4, 1000, 5)


class Clock:
    """An event loop's clock and timers, as far as they are asked for."""

    def __init__(self) -> None:
        self.now, self.calls = 100.0, list[tuple[float, Callable[[], None], list[bool]]]()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Any:
        live = [True]
        self.calls.append((when, call, live))
        return type("Handle", (), {"cancel": lambda _: live.clear()})()

    def call_soon(self, call: Callable[[], None]) -> Any:
        return self.call_at(self.now, call)

    def go(self, seconds: float) -> None:
        self.now += seconds
        due = [call for when, call, live in self.calls if when <= self.now and live]
        self.calls = [entry for entry in self.calls if entry[0] > self.now and entry[2]]
        for call in due:
            call()


class World:
    """Each leaving as the numbers that left."""

    def __init__(self) -> None:
        self.clock, self.number = Clock(), 0
        self.waits, self.left = list[int](), list[list[int]]()
        self.lingering = Lingering(self.leave)
        self.loop: Any = self.clock

    def leave(self) -> None:
        self.left.append(self.waits)
        self.waits = []
        self.lingering.note_handed_over(self.clock.now)

    def append(self, chain: Chain = CHAIN, size: int = 10, frame: bytes = b"") -> None:
        self.number += 1
        self.waits.append(self.number)
        publication = Publication("plant/a", bytes(size), 1, time_ms=1)
        row = StoredRow(self.number, chain, 1, frame, publication, size_of(publication))
        self.lingering.add_row(self.loop, row)

    def wrote(self, number: int) -> None:
        self.lingering.wrote(StoredRow(number, CHAIN, 1, b"", Publication("plant/a", b"", 1)))


def test_a_lone_one_leaves_at_once_and_what_follows_it_together_after_the_time() -> None:
    world = World()
    world.append()
    world.clock.go(0)
    assert world.left == [[1]]
    world.clock.go(0.001)
    world.append()
    world.append()
    world.clock.go(0.003)
    assert world.left == [[1]]
    world.clock.go(0.001001)
    assert world.left == [[1], [2, 3]]
    world.clock.go(0.0051)
    world.append()
    world.clock.go(0)
    assert world.left == [[1], [2, 3], [4]]


def test_a_full_batch_a_retained_one_and_another_scope_wait_for_nothing() -> None:
    for last in ({}, {"size": 990}, {"frame": b"retained"}, {"chain": Chain("other/#")}):
        world = World()
        world.append()
        world.clock.go(0)
        world.append()
        world.append()
        if not last:
            world.append()
        world.clock.go(0)
        assert world.left == [[1]]
        world.append(**last)  # type: ignore[arg-type]
        world.clock.go(0)
        assert world.left[1:] == [list(range(2, world.number + 1))], last


def test_what_waits_leaves_when_every_replica_has_what_left_before() -> None:
    world = World()
    world.append()
    world.clock.go(0)
    world.wrote(1)
    world.append()
    world.lingering.gone(world.loop, [7])
    world.clock.go(0.001)
    assert world.left == [[1]]
    world.lingering.gone(world.loop, [1])
    world.clock.go(0)
    assert world.left == [[1], [2]]


def test_a_store_writes_what_lingers_as_one_and_closing_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store(DataDirectory.open(tmp_path))
        entries, chain = list[StoredEntry](), Chain("plant/#", linger_ms=400)
        store.on_committed = entries.extend

        def append() -> None:
            store.append(Publication("plant/a", b"x", 1, time_ms=1), None, chain)

        append()
        await until(lambda: len(entries) == 1)
        for _ in range(3):
            append()
            await asyncio.sleep(0)
        store.forget_entries([entries[0].sequence])
        await until(lambda: len(entries) == 2)
        append()
        append()
        store.close()
        again = Store(DataDirectory.open(tmp_path))
        assert [count_of(row.publication) for row in again.page(0).rows] == [3, 2]
        again.close()

    asyncio.run(main())
