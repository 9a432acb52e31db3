"""A data directory is one process's, closed to others, and says in a line why it cannot be used.

A generation rises with every start, and goes round what wrong clocks left.

A seed is durable before it is used, one an epoch, closed to others, and gone when its epoch is.
"""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.data import DataDirectory, StoreError, sealing_key
from gateway.data.database import open_facts
from gateway.data.directory import FAR_AHEAD_MS, begin_generation, erase_seeds, following, split_seed


def test_a_seed_is_durable_differs_by_epoch_and_can_be_erased(tmp_path: Path) -> None:
    seed = split_seed(tmp_path / "seeds", 3)
    assert split_seed(tmp_path / "seeds", 4) != seed
    assert split_seed(tmp_path / "seeds", 3) == seed
    assert erase_seeds(tmp_path / "seeds", lambda epoch: epoch < 4) == [3]
    assert erase_seeds(tmp_path / "seeds", lambda epoch: epoch < 4) == []
    assert split_seed(tmp_path / "seeds", 3) != seed


def test_before_the_first_seed_there_is_nothing_to_erase(tmp_path: Path) -> None:
    assert erase_seeds(tmp_path / "seeds", lambda epoch: True) == []


@pytest.mark.parametrize("damage", [lambda path: path.chmod(0o644), lambda path: path.write_bytes(b"short")])
def test_a_seed_that_others_may_read_or_that_is_damaged_is_refused(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    split_seed(tmp_path / "seeds", 0)
    damage(tmp_path / "seeds" / "0.seed")
    with pytest.raises(StoreError, match=r"0\.seed") as error:
        split_seed(tmp_path / "seeds", 0)
    assert "\n" not in str(error.value)


FAR = FAR_AHEAD_MS


@pytest.mark.parametrize(
    ("stored", "over", "now_ms", "expected", "passed_over"),
    [
        (0, {}, 5_000, 5_000, {}),  # a lost directory
        (4_000, {}, 5_000, 5_000, {}),  # a restored backup
        (5_000, {}, 5_000, 5_001, {}),
        (6_000, {}, 5_000, 6_001, {}),  # the clock was set back a little
        (FAR + 4_999, {}, 5_000, FAR + 5_000, {}),
        (FAR + 5_000, {}, 5_000, 5_000, {FAR + 5_000: FAR + 5_001}),  # it had been far ahead
        (5_000, {FAR + 9_000: FAR + 9_001}, 6_000, 6_000, {FAR + 9_000: FAR + 9_002}),  # each start has one of its own
        (5_000, {FAR + 9_000: FAR + 9_001}, 9_002, FAR + 9_002, {FAR + 9_000: FAR + 9_002}),  # and takes it if it can
        (2 * FAR, {2 * FAR: 2 * FAR + 3}, 5_000, 5_000, {2 * FAR: 2 * FAR + 4}),
        (9, {n * FAR: n * FAR + 1 for n in range(2, 11)}, 10, 10, {n * FAR: n * FAR + 2 for n in range(3, 11)}),
    ],
)  # fmt: skip
def test_the_generation_of_a_start(
    stored: int, over: dict[int, int], now_ms: int, expected: int, passed_over: dict[int, int]
) -> None:
    assert following(stored, over, now_ms) == (expected, passed_over)


def test_what_a_start_passes_over_is_on_disk(tmp_path: Path) -> None:
    found = []
    for now_ms in (10 * FAR, 1, 2):
        with contextlib.closing(open_facts(tmp_path / "o")) as db:
            found.append(begin_generation(db, now_ms))
    assert found == [(10 * FAR, {}), (1, {10 * FAR: 10 * FAR + 1}), (2, {10 * FAR: 10 * FAR + 2})]


@pytest.mark.parametrize("value", [(1 << 63) - 1, -1, "'x'", "x'00'"])
def test_a_damaged_generation_is_refused_and_left_as_it_is(tmp_path: Path, value: object) -> None:
    with contextlib.closing(open_facts(tmp_path / "o")) as db:
        begin_generation(db, 1)
        db.execute(f"UPDATE facts SET value = {value} WHERE name = 'generation'")
        before = list(db.execute("SELECT * FROM facts"))
        with pytest.raises(sqlite3.DatabaseError, match="the stored generation is damaged"):
            begin_generation(db, 2)
        assert list(db.execute("SELECT * FROM facts")) == before


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
