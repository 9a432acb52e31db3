"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
"""The option of commands that print for programs, too."""

WIDTH_OF_A_FILE = 10_000
"""Characters of a line that no terminal folds; rich pads a table to its content, not to this width."""


def as_text(value: object) -> str:
    """Returns the text of a cell: lists a single item a line, truth as yes and no."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(as_text(item) for item in value)
    if isinstance(value, dict):
        return " ".join(as_text(item) for item in value.values())
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def utc_text(time_ms: float) -> str:
    """Returns a UNIX time in milliseconds as date and time of UTC. Raises OverflowError, ValueError or OSError for a
    time that no calendar has.
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def print_json(content: object) -> None:
    """Prints indented JSON on standard output."""
    print(json.dumps(content, indent=2, ensure_ascii=False))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Prints a table as wide as the terminal, where long cells are folded; a pipe or file gets a line for each row."""
    from rich.box import SIMPLE  # noqa: PLC0415  heavy, and JSON needs none of it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title or None, title_justify="left", box=SIMPLE, show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # `Text`, because brackets of a name are not markup
    if sys.stdout.isatty():
        Console().print(table)
    else:  # no width to fit into: folded cells would disturb grep and awk
        Console(width=WIDTH_OF_A_FILE).print(table)
