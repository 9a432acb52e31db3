"""Every row of the tables of rules holds, or differs as the table says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bridge.devices.tables import TABLES, rows_of

ROWS = [(table, row) for table in TABLES for row in rows_of(table)]


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{table}: {row.get('id', row['row'])}" for table, row in ROWS])
def test_a_row_holds_or_differs_as_it_says(table: str, row: dict[str, Any]) -> None:
    if "steps" not in row:
        assert row["differs"], "a row that nothing runs has a reason"
        return
    assert bool(TABLES[table](row)) is ("differs" in row), TABLES[table](row)


def test_a_row_stands_once_and_each_table_has_enough() -> None:
    for table, least in (("home_assistant", 60), ("homie", 40), ("sparkplug", 40)):
        names = [(row.get("id"), row["row"]) for row in rows_of(table)]
        assert len(set(names)) == len(names) >= least
