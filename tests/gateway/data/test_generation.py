"""A generation rises with every start, and goes round what wrong clocks left."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gateway.data.database import open_facts
from gateway.data.generation import FAR_AHEAD_MS, begin_generation, following

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
