"""Cells, tables and JSON as commands print them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.commands.printing import as_text, print_json, print_table

CELLS = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""), (True, "yes"), (False, "no"), (0, "0"), ("x", "x"), (1.5, "1.5"), ([], ""), (["a", True], "a\nyes"),
        ({"name": "g1", "since": None, "up": False}, "g1  no"),
    ],
)  # fmt: skip
def test_a_cell(value: object, shown: str) -> None:
    assert as_text(value) == shown


@given(st.lists(CELLS))
def test_a_list_is_its_cells_line_by_line(values: list[Any]) -> None:
    assert as_text(values) == "\n".join(map(as_text, values))


def test_brackets_of_a_name_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("members [all]", ["name", "what"], [["[bold]pump[/bold]", "[/]"]])
    out = capsys.readouterr().out
    assert "[bold]pump[/bold]" in out
    assert "[/]" in out
    assert "name" in out


def test_columns_without_names_have_no_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ["", ""], [["domain", "works"]])
    assert capsys.readouterr().out.split() == ["domain", "works"]


def test_json_keeps_every_letter_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"where": "Zürich", "n": [1]})
    out = capsys.readouterr().out
    assert "Zürich" in out
    assert json.loads(out) == {"where": "Zürich", "n": [1]}


def test_a_row_in_a_pipe_is_a_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ["name", "what"], [["g1", "word " * 60 + "end"]])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "g1" in line]
    assert line.rstrip().endswith("end")
