"""The column of tests of `explanation/invariants.md`, from the markers `invariant` and `attack` of the tests.

A row of the page begins with its number; a test that holds it is marked `@pytest.mark.invariant(12)` or
`@pytest.mark.attack(148)`. A marker of a module stands for all of its tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = ("invariant", "attack")
"""Markers, in the order of the page's two tables."""
MARKER = re.compile(r"\bmark\.(?:invariant|attack)\(")
HEADER, RULE, ROW = re.compile(r"\| \| .* \|$"), re.compile(r"\|(---\|)+$"), re.compile(r"\| (?P<number>\d+) \|.* \|$")

Row = tuple[str, int]
"""Row of the page: its kind and its number."""


def rows(markdown: str) -> Iterator[tuple[str, Row]]:
    """Yields each row of the page's tables with its kind and number."""
    kinds = iter(KINDS)
    kind = ""
    for line in markdown.splitlines():
        if HEADER.match(line):
            kind = next(kinds)
        elif found := ROW.match(line):
            yield line, (kind, int(found["number"]))


@cache
def holders() -> dict[Row, list[str]]:
    """Returns the tests that are marked for each row: a file, or a file and a function, as pytest names them."""
    found: dict[Row, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if MARKER.search(text):
            for name, row in marked(ast.parse(text)):
                place = path.relative_to(ROOT).as_posix()
                found.setdefault(row, []).append(f"{place}::{name}" if name else place)
    return found


def marked(module: ast.Module) -> Iterator[tuple[str, Row]]:
    """Yields the name of each marked test with a row that it holds; an empty name for the whole module."""
    classes = [node.body for node in module.body if isinstance(node, ast.ClassDef)]
    for node in chain(module.body, *classes):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((node.name, row) for row in _rows_of(node.decorator_list))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            values = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            yield from (("", row) for row in _rows_of(values))


def _rows_of(markers: Iterable[ast.expr]) -> Iterator[Row]:
    for each in markers:
        if isinstance(each, ast.Call) and MARKER.search(ast.unparse(each)):
            kind = ast.unparse(each.func).rpartition(".")[2]
            yield from ((kind, ast.literal_eval(number)) for number in each.args)


def with_tests(markdown: str) -> str:
    """Returns the page with the column of tests."""
    tests, numbered = holders(), dict(rows(markdown))

    def cell(line: str) -> str:
        if HEADER.match(line):
            return " tests |"
        if RULE.match(line):
            return "---|"
        if line not in numbered:
            return ""
        return f" {'<br>'.join(f'`{name}`' for name in tests.get(numbered[line], ()))} |"

    return "".join(f"{line}{cell(line)}\n" for line in markdown.splitlines())
