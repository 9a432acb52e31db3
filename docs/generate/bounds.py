"""Values of the constants that `reference/bounds.md` names, filled into its empty cells at every build, and the table
of all other bounds, made from the code: each with its value and with its comment or docstring there.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

from fair_by import FAIR_BY

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<names>`[a-z_]+\.[^|]+) \|  \| (?P<text>.*) \|$", re.MULTILINE)
OTHERS = "<!-- all other bounds -->"
"""Line of the page in whose place the table of `others` comes."""
BOUND = re.compile(r"MAX_[A-Z_0-9]+|[A-Z][A-Z_0-9]*_(?:MAX|BURST|MOST|KEPT|LIMIT|AT_ONCE)")
"""Names of constants that are bounds."""
UNBOUNDED = {"demo"}
"""Rooms that no member runs."""


def filled(markdown: str) -> str:
    """The page with values. Raises LookupError for a constant that the code does not have."""
    page = ROW.sub(lambda row: f"| {row['names']} | {_values(row['names'])} | {row['text']} |", markdown)
    return page.replace(OTHERS, others(markdown))


def others(markdown: str) -> str:
    """Returns the table of the bounds that no row of the page names."""
    said, found = named(markdown), comments()
    rows = [
        f"| `{name}` | {_values(f'`{name}`')} | {comment} | {FAIR_BY[name]} |"
        for name, comment in sorted(found.items())
        if name not in said
    ]
    return "\n".join(["| name | value | what it is for | fair by |", "|---|---|---|---|", *rows])


def named(markdown: str) -> set[str]:
    """Returns the constants that rows of the page name, each with its module."""
    return {name for row in re.findall(r"^\| (`[a-z_]+\.[^|]+) \|", markdown, re.MULTILINE) for name in _names(row)}


@cache
def owners(markdown: str) -> dict[str, str]:
    """Returns by whom each bound is fair: constants of the page and of `FAIR_BY`, and limits of the configuration."""
    found, is_limits = dict(FAIR_BY), False
    for line in markdown.splitlines():
        is_limits = line == "## Of a broker" or (is_limits and not line.startswith("## "))
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.match(r"\| `[a-z_]+\.", line):
            found |= dict.fromkeys(_names(cells[0]), cells[-1].rstrip(" |"))
        elif is_limits and re.match(r"\| `\w+` \|", line):
            found[f"limits.{cells[0].strip('`')}"] = cells[-1].rstrip(" |")
    return found | dict.fromkeys(re.findall(r"`(overlay\.\w+)`", markdown), "client")


@cache
def comments() -> dict[str, str]:
    """Returns all bounds of the code, by module and name, with the comment or docstring of each, on one line."""
    found: dict[str, str] = {}
    for path in sorted(path for top in ("keys", "bridge", "gateway") for path in (ROOT / top).rglob("*.py")):
        if UNBOUNDED & set(path.parts):
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found |= {f"{module}.{name}": comment for name, comment in _bounds(path.read_text("utf-8"))}
    return found


def _bounds(source: str) -> Iterator[tuple[str, str]]:
    if not BOUND.search(source):
        return
    lines, statements = source.splitlines(), ast.parse(source).body
    for statement, after in zip(statements, [*statements[1:], None], strict=True):
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        end = statement.end_lineno or statement.lineno
        comment = lines[end - 1][statement.end_col_offset :].partition("#")[2]
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            comment = after.value.value
        for name in names:
            if BOUND.fullmatch(name):
                yield name, " ".join(comment.replace("|", "\\|").split())


def _names(cell: str) -> Iterator[str]:
    module = ""
    for name in re.findall(r"`([\w.]+)`", cell):
        before, _, constant = name.rpartition(".")
        module = before or module  # a name without a module is of the one before it
        yield f"{module}.{constant}"


def _values(cell: str) -> str:
    values = []
    for name in _names(cell):
        module, _, constant = name.rpartition(".")
        try:
            values.append(_written(constant, getattr(importlib.import_module(module), constant)))
        except (ImportError, AttributeError):
            raise LookupError(f"reference/bounds.md names {name}, which does not exist") from None
    return "; ".join(values)


def _written(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_written(name, each)}" for key, each in value.items())
    if isinstance(value, tuple):
        return " / ".join(_written(name, each) for each in value)
    if is_dataclass(value):
        given = [
            (one.name, getattr(value, one.name)) for one in fields(value) if getattr(value, one.name) != one.default
        ]
        return ", ".join(f"{field} {_written(field.upper(), each)}" for field, each in given)
    if not isinstance(value, int | float):
        return str(value)
    if "BYTES" in name and "PER_S" not in name and isinstance(value, int):
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size and value % size == 0:
                return f"{value // size:,} {unit}"
    number = f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"
    return f"{number} s" if name.endswith("_S") and not name.endswith("PER_S") else number
