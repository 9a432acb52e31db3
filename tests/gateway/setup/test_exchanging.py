"""On one machine the newest overlay reaches every copy of it, and endorsements come back to the owner's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.document import Overlay
from gateway.owner.attaching import attach
from gateway.setup import Plan, exchanging, join, make_overlay, role_folders
from gateway.setup.exchanging import CopiedFiles
from gateway.trust import load_overlay
from keys.identity import Role

NOW = time.time()


def test_the_newest_overlay_reaches_all_copies_and_one_of_another_owner_none(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    other = make_overlay(tmp_path / "other", Plan(), 22000, NOW)
    folders = [folder.overlay for folder in role_folders(made.directory)]
    join(made.directory / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    joined = made.directory / "r4" / "overlay.json"
    attach(made.overlay, made.directory / "owner", "region1", made.directory / "r4/identity/card.json",
           "127.0.0.1:29001", NOW)  # fmt: skip
    folders[0].write_bytes(other.overlay.read_bytes())  # put there by mistake, or by somebody who may write there
    CopiedFiles().exchange(made.overlay, [*folders, joined], int(NOW * 1000))
    now_ms = int(NOW * 1000)
    assert load_overlay(folders[0], now_ms).owner == load_overlay(other.overlay, now_ms).owner
    for path in [*folders[1:], joined, made.overlay]:
        assert load_overlay(path, now_ms).policy.version == 2


def test_what_a_member_adopted_comes_back_to_the_owner(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    before = made.overlay.read_bytes()
    join(tmp_path / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    attach(
        made.overlay, made.directory / "owner", "region1", tmp_path / "r4/identity/card.json", "127.0.0.1:29001", NOW
    )
    folder = made.directory / "r1" / "overlay.json"
    folder.write_bytes(made.overlay.read_bytes())
    made.overlay.write_bytes(before)
    CopiedFiles().exchange(made.overlay, [folder], int(NOW * 1000))
    assert made.overlay.read_bytes() == folder.read_bytes()


def test_who_is_not_attached_yet_gets_nothing_that_it_could_not_start_with(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    join(made.directory / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    joined, copies = made.directory / "r4" / "overlay.json", CopiedFiles()
    copies.exchange(made.overlay, [joined], int(NOW * 1000))
    assert not joined.exists()
    card = made.directory / "r4/identity/card.json"
    attach(made.overlay, made.directory / "owner", "region1", card, "127.0.0.1:29001", NOW)
    copies.exchange(made.overlay, [joined], int(NOW * 1000))
    assert joined.read_bytes() == made.overlay.read_bytes()


def test_what_the_owner_signs_while_copies_are_looked_at_is_not_overwritten_and_goes_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    before = made.overlay.read_bytes()
    folders = [folder.overlay for folder in role_folders(made.directory)]
    join(tmp_path / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    card = tmp_path / "r4/identity/card.json"
    attach(made.overlay, made.directory / "owner", "region1", card, "127.0.0.1:29001", NOW)
    signed = made.overlay.read_bytes()
    made.overlay.write_bytes(before)
    folders[0].write_bytes(before)
    folders[1].write_bytes(before)
    copies = CopiedFiles()
    look = exchanging.newest

    def slow_look(paths: Sequence[Path], now_ms: int) -> tuple[Path, Overlay] | None:
        found = look(paths, now_ms)
        monkeypatch.setattr(exchanging, "newest", look)
        made.overlay.write_bytes(signed)
        return found

    monkeypatch.setattr(exchanging, "newest", slow_look)
    now_ms = int(NOW * 1000)
    for _ in range(2):
        copies.exchange(made.overlay, folders, now_ms)
    assert {load_overlay(path, now_ms).policy.version for path in (made.overlay, *folders)} == {2}
