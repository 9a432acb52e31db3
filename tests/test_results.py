"""The page of figures is made from result files, and a bench's output becomes such a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench import results

FILES = sorted(results.RESULTS.glob("*.jsonl"))


def test_the_tables_of_the_page_are_those_of_the_result_files() -> None:
    text = results.PAGE.read_text()
    assert results.page(text) == text, "python -m tests.bench.results page"
    assert {found[1] for found in results.MARK.findall(text)} == {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_result_file_says_how_it_was_made(path: Path) -> None:
    head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["command"]
    assert head["day"] >= "2026"
    assert rows
    assert all({"work", "ours", "unit", "peer_name"} <= row.keys() for row in rows)


def test_a_bench_that_prints_rows_becomes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "SPEED_S", 0.01)
    row = {"work": "split", "ours": 250.0, "peer": 125.0, "peer_name": "other", "ratio": 2.0, "unit": "us"}
    row |= {"goal": "<= 1.5 x", "met": False}
    code = (
        f"import json; print('a line for people'); print(json.dumps({row!r})); print(json.dumps({{'load_after': 1}}))"
    )
    path = results.keep("new", [sys.executable, "-c", code])
    assert "| split | 250 µs | other: 125 | 2.00 | ≤ 1.5, **missed** |" in results.table(path)


def test_rows_without_a_goal_are_shown_where_none_has_one(tmp_path: Path) -> None:
    row = {"work": "split", "ours": 2.5, "peer": None, "peer_name": "", "ratio": None, "unit": "us"}
    path = tmp_path / "few.jsonl"
    head = json.dumps({"command": "make bench", "day": "2026-11-28", "load_before": 0.5, "load_after": 1.25})
    path.write_text(f"{head}\n{json.dumps(row)}\n")
    assert "| split | 2.5 µs |" in results.table(path)
    assert "`make bench`; 2026-11-28; load 0.5 to 1.2." in results.table(path)
    path.write_text(f"{head}\n{json.dumps(row)}\n{json.dumps(row | {'work': 'join', 'goal': '<= 1', 'met': True})}\n")
    assert "split" not in results.table(path)
