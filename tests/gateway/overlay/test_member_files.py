"""Files of a running member: what is owed to the disk is paid, and seeds go with their epochs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.data import StoreError
from gateway.overlay.key_material import KeyMaterialError
from gateway.overlay.member_files import Keeping
from keys.epochs import Calendar, ScopeKeys
from keys.identity import Role
from tests.sim.world import NOW, make_world

HOUR_S = 3600
CALENDAR = Calendar(length_s=HOUR_S, grace_s=60, skew_s=5, history_epochs=2)
WORLD = make_world({1: 3, 2: 3}, [(1, 2)], {"g1": 1}, calendar=CALENDAR)
EPOCH = CALENDAR.epoch_at(NOW)


class Disk:
    """Seeds of epochs, a cache of keys and a key server's material, which refuse what they are told to."""

    def __init__(self) -> None:
        self.seeds = {EPOCH - 2, EPOCH - 1, EPOCH}
        self.refuses = False
        self.saved: list[int] = []
        self.written: list[tuple[str, object]] = []

    def erase_seeds(self, is_over: Callable[[int], bool]) -> list[int]:
        if self.refuses:
            raise StoreError("the disk is gone")
        gone = sorted(filter(is_over, self.seeds))
        self.seeds -= set(gone)
        return gone

    def save(self, keys: ScopeKeys, since: int) -> None:
        self.saved.append(since)

    def archive(self, epoch: int, content: bytes | None) -> None:
        if self.refuses:
            raise KeyMaterialError("the disk is full")
        self.written.append(("archive", epoch))

    def keep_material(self, material: bytes) -> None:
        if self.refuses:
            raise KeyMaterialError("the disk is full")
        self.written.append(("material", material))


def keeping(name: str = "g1") -> tuple[Keeping, Disk]:
    disk: Any = Disk()
    role = WORLD.overlay.certificate(name).role if name in WORLD.overlay.members else Role.GATEWAY
    live: Any = SimpleNamespace(overlay=WORLD.overlay, local=SimpleNamespace(name=name, role=role))
    return Keeping(disk, live, WORLD.keys, disk, disk), disk


def test_seeds_go_when_nothing_of_their_epoch_can_be_fresh() -> None:
    made, disk = keeping()
    starts = CALENDAR.start_s(EPOCH)
    made.end_epochs(starts + 60)
    assert disk.seeds == {EPOCH - 1, EPOCH}, "clocks differ: the former is not over for everybody"
    made.end_epochs(starts + 65)
    assert disk.seeds == {EPOCH}


def test_keys_are_kept_for_live_epochs_and_those_of_history() -> None:
    made, disk = keeping()
    made.end_epochs(CALENDAR.start_s(EPOCH) + 100)
    assert disk.saved == [EPOCH - 1 - 2]
    made.end_epochs(CALENDAR.start_s(EPOCH) + 200)
    assert len(disk.saved) == 1, "nothing is left to do in this epoch"
    made.end_epochs(CALENDAR.start_s(EPOCH + 1) + 100)
    assert disk.saved[1:] == [EPOCH - 2]


def test_a_disk_that_refuses_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    made, disk = keeping()
    disk.refuses = True
    made.end_epochs(CALENDAR.start_s(EPOCH) + 100)
    assert (len(disk.seeds), disk.saved) == (3, [])
    disk.refuses = False
    made.end_epochs(CALENDAR.start_s(EPOCH) + 101)
    assert disk.seeds == {EPOCH}


def test_what_a_key_server_owes_is_written_in_order_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The archive first: the material that could make it again is overwritten after it."""
    made, disk = keeping()
    disk.refuses = True
    made.keep_archive(5, b"archive")
    made.keep_material(b"old")
    made.keep_material(b"new")
    assert disk.written == []
    assert caplog.text.count("the disk is full") == 1
    disk.refuses = False
    made.end_epochs(NOW)
    assert disk.written == [("archive", 5), ("material", b"new")]
    made.end_epochs(NOW + 1)
    assert len(disk.written) == 2


@pytest.mark.parametrize("name", ["r1a", "stranger"])
def test_who_is_removed_keeps_no_seed(name: str) -> None:
    made, disk = keeping(name)
    made.removed()
    assert disk.seeds == set()


def test_replicas_and_key_servers_are_dialled_and_gateways_are_not() -> None:
    made, _ = keeping()
    assert made.listeners(["r1b", "g1", "keys", "unknown", "r1a"]) == ["keys", "r1a", "r1b"]
