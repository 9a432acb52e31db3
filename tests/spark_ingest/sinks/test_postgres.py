"""PostgreSQL: a row is there once."""

from __future__ import annotations

from typing import Any

import pytest

from spark_ingest.errors import BadOption
from tests.spark_ingest.sink_targets import POSTGRES, Postgres, database

pytest.importorskip("adbc_driver_postgresql")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

HOSTILE = "a\n\\.\nDROP TABLE telemetry;\n\tb'\""


@pytest.mark.skipif(not POSTGRES, reason="no PostgreSQL here; make tools")
def test_postgresql_takes_a_row_once(rows: Any) -> None:
    """Rows that come again, of another batch too; days as partitions, new columns, values that look like statements."""
    with database() as place:
        target = Postgres(place)
        for number, made in enumerate((rows(1, 2), rows(1, 2, 3), rows(4, day=23, more="1.5D AS value"), rows(5))):
            target.sink(made, number)
            target.sink(made, number)
        assert sorted(target.found()) == [("someone", number) for number in range(1, 6)]
        assert target.ask("SELECT sequence, value FROM telemetry WHERE value IS NOT NULL") == [["4", "1.5"]]
        days = target.ask("SELECT tableoid::regclass::text, count(*) FROM telemetry GROUP BY 1 ORDER BY 1")
        assert days == [["telemetry_20261122", "4"], ["telemetry_20261123", "1"]]
        asked = "SELECT topic, encode(payload, 'hex'), properties->0->>'value' FROM telemetry WHERE sequence = 1"
        assert target.ask(asked) == [[HOSTILE, "005c2e0a", "x"]]
        with pytest.raises(BadOption, match="no column number"):
            Postgres(place, key=("number",)).sink(rows(6), 9)
