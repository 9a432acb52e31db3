"""The base of sinks, by the sink that the manual writes in three steps."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.errors import BadOption
from spark_ingest.sinks.sink import BatchName

PAGE = Path(__file__).parents[3] / "docs/how-to/spark-sinks.md"


class Rows:
    """Rows of a publisher, as far as the manual's sink asks."""

    def __init__(self, *sequences: int) -> None:
        self._rows = [("someone", each, b"") for each in sequences]

    def select(self, *_: str) -> Rows:
        return self

    def collect(self) -> list[tuple[str, int, bytes]]:
        return self._rows


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Makes the manual's sink, of one file."""
    section = PAGE.read_text().partition("## Another sink in three steps")[2]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {}
    exec(program[1], names)
    return lambda: names["SqliteSink"](tmp_path / "rows.sqlite3")


def sequences(path: Path) -> list[int]:
    return [row[0] for row in sqlite3.connect(path).execute("SELECT sequence FROM telemetry ORDER BY sequence")]


def test_the_sink_of_the_manual_takes_each_batch_once(made: Any, tmp_path: Path) -> None:
    first, successor = made(), made()
    for number, rows in ((0, Rows(1, 2)), (1, Rows(3)), (1, Rows(3)), (0, Rows(1, 2))):
        first(rows, number)
    assert not first.has(BatchName("plant", 2))
    successor(Rows(4), 2)
    first.commit(Rows(4), BatchName("plant", 2))
    first.write(Rows(9), "november")
    successor.write(Rows(9), "november")
    assert sequences(tmp_path / "rows.sqlite3") == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x" * 101])
def test_names_that_are_none_are_refused(made: Any, name: str) -> None:
    with pytest.raises(BadOption, match="no name of a query or batch"):
        made().write(Rows(1), name)
