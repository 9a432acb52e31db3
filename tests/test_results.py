"""The page of figures is made from result files, and a bench's output becomes such a file."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.bench import papers, results

FILES = sorted(results.RESULTS.glob("*.jsonl"))


def test_the_tables_of_the_page_are_those_of_the_result_files() -> None:
    text = results.PAGE.read_text()
    assert results.page(text) == text, "python -m tests.bench.results page"
    assert {found[1] for found in results.MARK.findall(text)} >= {path.stem for path in FILES}


@pytest.mark.parametrize("name", results.SHOWN)
def test_each_pattern_names_a_row_of_its_file(name: str) -> None:
    rows = [json.loads(line) for line in (results.RESULTS / f"{name}.jsonl").read_text().splitlines()[1:]]
    for pattern in results.SHOWN[name]:
        assert any(results.is_named(row, pattern) for row in rows), pattern


def test_the_page_has_the_rows_that_are_named_and_show_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "SHOWN", {"few": ("seal*", "join | third")})
    row = {"work": "sealing", "ours": 2.5, "peer": 5.0, "peer_name": "other", "ratio": None, "unit": "us"}
    goal = {"goal": "<= 3 us", "met": True}
    rows = [row, row | {"work": "join", **goal}, row | {"work": "join", "peer_name": "third", **goal, "met": False}]
    path = tmp_path / "few.jsonl"
    head = {"command": "make bench", "day": "2026-11-28"}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (head, *rows)))
    said, _, _, _, *shown = results.table(path).splitlines()
    assert said.endswith("1 of 2 goals met.")
    assert shown == ["| join | 2.5 µs | third: 5 | ≤ 3 us, **missed** |", "| sealing | 2.5 µs | other: 5 | |"]
    monkeypatch.setattr(sys, "argv", ["results", "show", "few"])
    assert results.main() == 0
    assert capsys.readouterr().out.count("2.5 µs") == 3


def test_between_marks_of_a_bench_that_is_not_kept_the_text_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    text = "<!-- results: new -->\none run by hand\n<!-- end -->\n"
    assert results.page(text) == text
    row = {"work": "split", "ours": 2.5, "peer": None, "peer_name": "", "ratio": None, "unit": "us"}
    (tmp_path / "new.jsonl").write_text(
        f"{json.dumps({'command': 'make bench', 'day': '2026-11-28'})}\n{json.dumps(row)}\n"
    )
    assert "one run by hand" not in results.page(text)
    assert "| split | 2.5 µs |" in results.page(text)


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
    assert shlex.split(json.loads(path.read_text().splitlines()[0])["command"]) == [sys.executable, "-c", code]
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


@pytest.mark.parametrize(("before", "said"), [(None, "load not noted."), (3.0, "load 3.0."), (3.1, "a busy machine.")])
def test_a_table_says_that_the_machine_was_busy_or_that_no_load_was_noted(
    tmp_path: Path, before: float | None, said: str
) -> None:
    row = {"work": "split", "ours": 2.5, "peer": None, "peer_name": "", "ratio": None, "unit": "us"}
    head = {"command": "make bench", "day": "2026-11-28", "load_before": before}
    path = tmp_path / "few.jsonl"
    path.write_text(f"{json.dumps(head)}\n{json.dumps(row)}\n")
    assert results.table(path).splitlines()[0].endswith(said)


def test_words_of_the_row_above_are_a_dash_and_an_empty_column_is_left_out(tmp_path: Path) -> None:
    row = {"work": "", "ours": 2.5, "peer": 5.0, "peer_name": "other", "ratio": None, "unit": "us"}
    rows = [row | {"work": work} for work in ("A: split", "A: join", "A: join")]
    rows[2]["peer_name"] = "third"
    rows += [row | {"work": "B: join"}, row | {"work": "seal", "peer_version": "2"}]
    rows += [row | {"work": "seal", "peer_name": "named", "peer_version": "1"}]
    head = json.dumps({"command": "make bench", "day": "2026-11-28", "found": {"named": "1"}})
    path = tmp_path / "few.jsonl"
    path.write_text("".join(f"{line}\n" for line in (head, *map(json.dumps, rows))))
    assert results.table(path).splitlines()[2:] == [
        "| work | ours | beside |",
        "|---|---|---|",
        "| A: split | 2.5 µs | other: 5 |",
        "| – join | 2.5 µs | 5 |",
        "| – join | 2.5 µs | third: 5 |",
        "| B: join | 2.5 µs | other: 5 |",
        "| seal | 2.5 µs | other 2: 5 |",
        "| – | 2.5 µs | named: 5 |",
    ]


def test_a_row_with_intervals_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    row = json.loads(papers.as_json("p50", "ms", [9.0, 10.0, 11.0], "static", [100.0, 300.0]))
    path.write_text(f"{json.dumps({'command': 'make bench-papers', 'day': '2026-11-29'})}\n{json.dumps(row)}\n")
    assert "| p50 | 10 ± 2.48 ms | static: 200 ± 1,271 | 0.05 |" in results.table(path)


def test_one_run_has_no_interval() -> None:
    row = json.loads(papers.as_json("p50", "ms", [9.0], "static", [0.0]))
    assert (row["interval"], row["peer_interval"], row["ratio"], row["runs"]) == (None, None, None, 1)
    assert papers.show("p50", "ms", [9.0], "static", [1234.0]).split()[1:3] == ["9", "1,234"]
    assert "9 ± 12.7" in papers.show("p50", "ms", [8.0, 10.0], "static", [1.0, 1.0])


def test_a_part_that_fails_is_said_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(runs: int) -> papers.Samples:
        raise RuntimeError("no tc")
        yield

    def works(runs: int) -> papers.Samples:
        yield "p50", "ms", [1.0] * runs, "static", [2.0] * runs

    monkeypatch.setattr(papers, "PARTS", {"planes": fails, "path": works})
    monkeypatch.setattr(sys, "argv", ["papers", "--json", "--runs", "2"])
    assert papers.main() == 1
    missing, row = map(json.loads, capsys.readouterr().out.splitlines())
    assert missing == {"bench": "papers", "work": "planes", "missing": "did not finish: RuntimeError: no tc"}
    assert (row["work"], row["ratio"], row["runs"]) == ("p50", 0.5, 2)
