"""A data directory is one process's, closed to others, and says in a line why it cannot be used."""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.data import DataDirectory, StoreError, sealing_key


@contextlib.contextmanager
def opened(path: Path) -> Iterator[DataDirectory]:
    with contextlib.closing(DataDirectory.open(path)) as data:
        yield data


def test_its_generation_is_the_time_and_only_rises(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        with opened(tmp_path) as data:
            seen.append(data.generation)
    assert seen[0] < seen[1] < seen[2]
    assert abs(seen[0] - time.time() * 1000) < 60_000


def test_a_clock_that_went_back_is_passed_over_and_remembered(tmp_path: Path) -> None:
    far = 10_000_000
    seen = []
    for now_ms in (far, 1):
        with contextlib.closing(DataDirectory(tmp_path, now_ms)) as data:
            seen.append((data.generation, data.passed_over))
    assert seen == [(far, {}), (1, {far: far + 1})]


def test_keys_for_files_differ_by_purpose_and_directory_and_outlive_a_restart(tmp_path: Path) -> None:
    keys = []
    for name in ("a", "a", "b"):
        with opened(tmp_path / name) as data:
            keys += [data.sealing_key(b"one"), data.sealing_key(b"two")]
            assert sealing_key(tmp_path / name, b"one") == keys[-2], "also while it is in use"
    assert keys[:2] == keys[2:4]
    assert len(set(keys)) == 4


def test_nothing_is_open_to_others(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as data:
        data.split_seed(0)
        found = list((tmp_path / "data").rglob("*"))
        assert {path.name for path in found} >= {"lock", "store.key", "outbox.sqlite3", "0.seed"}
        for path in found:
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        assert data.erase_seeds(lambda epoch: True) == [0]


def test_two_processes_cannot_share_it(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StoreError, match="used by another veilmq"):
        DataDirectory.open(tmp_path)
    DataDirectory.open(tmp_path).close()


@pytest.mark.parametrize(("name", "content", "says"), [
    ("outbox.sqlite3", b"this is no database, but long enough to be looked at" * 50, "damaged"),
    ("store.key", b"short", "not a store key"),
])  # fmt: skip
def test_a_damaged_one_is_one_line_and_stays_usable_by_its_cure(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / name).chmod(0o600)
    with pytest.raises(StoreError, match=says) as caught:
        DataDirectory.open(tmp_path)
    assert "\n" not in str(caught.value)
    (tmp_path / name).unlink()
    DataDirectory.open(tmp_path).close()  # the lock was given back


def test_a_file_in_its_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(StoreError, match="data") as caught:
        DataDirectory.open(tmp_path / "data")
    assert "\n" not in str(caught.value)
