"""Every row of the tables of rules holds, or differs as the table says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bridge.devices.tables import TABLES, rows_of


@pytest.mark.parametrize("table", TABLES)
def test_a_row_holds_or_differs_as_it_says(table: str) -> None:
    wrong = [f"{row.get('id', row['row'])}: {found}" for row in rows_of(table) if (found := fault_of(table, row))]
    assert not wrong, "\n".join(wrong)


def fault_of(table: str, row: dict[str, Any]) -> str:
    """Returns why a row is not as it says; an empty text if it is."""
    if "steps" not in row:
        return "" if row["differs"] else "a row that nothing runs has a reason"
    found = TABLES[table](row)
    return "" if bool(found) is ("differs" in row) else f"it says the contrary: {found}"


def test_a_row_stands_once_and_each_table_has_enough() -> None:
    for table, least in (("home_assistant", 60), ("homie", 40), ("sparkplug", 40)):
        names = [(row.get("id"), row["row"]) for row in rows_of(table)]
        assert len(set(names)) == len(names) >= least
