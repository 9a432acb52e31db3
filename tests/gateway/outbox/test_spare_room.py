"""Spare room of the outbox: one client that fills it does not lock the others out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Chain, Publication
from gateway.data import DataDirectory, NoRoomError
from gateway.outbox.spare_room import CLIENT_PART, OWNER_PART, PART, SpareRoom
from gateway.outbox.store import Store

BOUND = 1 << 18
CHAIN = Chain("plant/#")


def run_with(directory: Path, use: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = Store(DataDirectory.open(directory), max_bytes=BOUND)
        try:
            await use(store)
        finally:
            store.close()

    asyncio.run(main())


def stored(store: Store, client: str, owner: str = "", size: int = 200) -> int:
    """Returns the number of a message that a client published, or 0 if it was refused."""
    publication = Publication("plant/a", bytes(size), 1, time_ms=1, owner=owner)
    try:
        return store.append(publication, None, CHAIN, client=client)
    except NoRoomError:
        return 0


def filled(store: Store, client: str, owner: str = "") -> list[int]:
    numbers = []
    while number := stored(store, client, owner):
        numbers.append(number)
    return numbers


@pytest.mark.attack(148)
def test_one_client_alone_uses_all_and_others_get_in_all_the_same(tmp_path: Path) -> None:
    """Attack: a client floods the gateway while its uplink is away: every other client was refused."""

    async def use(store: Store) -> None:
        filled(store, "evil")
        assert store.held_bytes >= BOUND - 1000, "alone it may use the whole"
        assert stored(store, "evil") == 0
        assert all(stored(store, f"pump{n}", f"user {n}") for n in range(20)), "others are not refused"
        assert store.held_bytes <= BOUND + BOUND // PART

    run_with(tmp_path, use)


def test_a_client_with_the_same_user_is_another_client(tmp_path: Path) -> None:
    async def use(store: Store) -> None:
        filled(store, "broken", "user fleet")
        assert stored(store, "pump", "user fleet")

    run_with(tmp_path, use)


@pytest.mark.attack(148)
def test_a_user_with_many_client_ids_does_not_take_the_spare_room(tmp_path: Path) -> None:
    """Attack: the flood goes on under a hundred client ids."""

    async def use(store: Store) -> None:
        for n in range(100):
            filled(store, f"evil{n}", "user mallory")
        assert stored(store, "pump", "user ann")

    run_with(tmp_path, use)


def test_what_arrived_makes_room_again(tmp_path: Path) -> None:
    """Entries that were bundled, refused by the disk or left on disk are counted until they are gone."""

    async def use(store: Store) -> None:
        committed = asyncio.Event()
        store.on_committed = lambda entries: committed.set()
        filled(store, "evil")
        assert filled(store, "pump")
        counted = dict(store._spare._held)
        store._hand_over()
        await committed.wait()
        kept = list(store._in_hand)
        store.leave_on_disk(kept[-1])
        assert store._spare._held == counted
        store.page(kept[-1])
        store.forget_entries(kept)
        assert (len(store._spare), store._spare._held, store.held_bytes) == (0, {}, 0)
        assert stored(store, "evil")
        assert len(store._spare) == 0

    run_with(tmp_path, use)


@pytest.mark.parametrize(("owners", "part"), [(1, CLIENT_PART), (2, OWNER_PART)])
def test_parts_are_of_what_is_free(owners: int, part: int) -> None:
    """One client has a sixteenth of what is free, the clients of one owner a quarter of that."""
    room, free, held = SpareRoom(), 1 << 20, 0
    for number in range(1 if owners == 1 else 1000):
        while room.admits("user a", f"c{number}", 100, free - held - 100):
            room.enter_entry(held, "user a", f"c{number}", 100)
            held += 100
    assert held == pytest.approx((free - held) / part, rel=0.01)


def test_bundles_count_for_each_of_their_clients() -> None:
    room = SpareRoom()
    for number, client in enumerate("aab"):
        room.enter_entry(number, "user u", client, 10)
    room.bundled((0, 1, 2))
    room.bundled((7, 8))
    assert (len(room), room._held) == (1, {"owner user u": 30, "client a": 20, "client b": 10})
    room.gone(1)
    room.gone(0)
    assert (len(room), room._held) == (0, {})
