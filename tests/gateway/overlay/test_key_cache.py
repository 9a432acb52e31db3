"""Epoch keys on disk: sealed, replaced whole, bound to us, and gone when they should be."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.overlay.key_cache import FILE_NAME, KeyCache
from keys.epochs import KeyName, ScopeKeys

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
OWNER = b"o" * 32
NAMES = [KeyName("plant/#", 3, 0), KeyName("plant/#", 4, 0), KeyName("plant/#", 4, 1), KeyName("other/+", 4, 0)]


def held() -> ScopeKeys:
    keys = ScopeKeys()
    for number, name in enumerate(NAMES, 1):
        keys.put_key(name, bytes([number]) * 32)
    return keys


def cache(directory: Path, key: bytes = KEY, owner: bytes = OWNER, name: str = "site") -> KeyCache:
    return KeyCache(directory, key, owner, name)


def test_keys_come_back_after_a_restart_and_lie_sealed(tmp_path: Path) -> None:
    cache(tmp_path).save(held())
    again = ScopeKeys()
    assert cache(tmp_path).load(again) == len(NAMES)
    assert dict(again) == dict(held())
    path = tmp_path / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(key in path.read_bytes() for _, key in held())
    assert b"plant" not in path.read_bytes()


def test_keys_of_ended_epochs_are_not_kept(tmp_path: Path) -> None:
    cache(tmp_path).save(held(), since_epoch=4)
    again = ScopeKeys()
    cache(tmp_path).load(again)
    assert sorted(name for name, _ in again) == sorted(NAMES[1:])


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    kept.save(held())
    before = (tmp_path / FILE_NAME).stat().st_ino
    kept.save(held())
    assert (tmp_path / FILE_NAME).stat().st_ino == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:20] + b"\xff" + path.read_bytes()[21:]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"x" * 100),
        lambda path: path.chmod(0o644),
    ],
    ids=["cut", "altered", "empty", "foreign", "open to others"],
)
def test_a_damaged_cache_is_one_line_and_a_fresh_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], object]
) -> None:
    cache(tmp_path).save(held())
    spoil(tmp_path / FILE_NAME)
    again = ScopeKeys()
    fresh = cache(tmp_path)
    assert fresh.load(again) == 0
    assert len(again) == 0
    assert len(caplog.records) == 1
    assert "fetched anew" in caplog.text
    fresh.save(held())
    assert cache(tmp_path).load(again) == len(NAMES)


@pytest.mark.parametrize(
    "whose", [{"key": OTHER_KEY}, {"owner": b"p" * 32}, {"name": "sit"}], ids=["store", "overlay", "member"]
)
def test_a_cache_of_somebody_else_is_not_used(tmp_path: Path, whose: dict[str, object]) -> None:
    cache(tmp_path).save(held())
    again = ScopeKeys()
    assert cache(tmp_path, **whose).load(again) == 0  # type: ignore[arg-type]
    assert len(again) == 0


def test_a_full_disk_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = tmp_path / "gone"
    cache(gone).save(held())
    assert "are not kept" in caplog.text
    assert len(caplog.records) == 1
