"""Rows of a real session for sinks whose rows executors write."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def rows(spark: Any) -> Any:
    """Makes rows of these sequences on a day of November."""

    def make(*sequences: int, day: int = 22, more: str = "") -> Any:
        made = spark.createDataFrame([(each,) for each in sequences], "sequence bigint").repartition(2)
        return made.selectExpr(
            "'someone' AS publisher", "sequence", r"'a\n\\.\nDROP TABLE telemetry;\n\tb\'\"' AS topic",
            f"timestamp '2026-11-{day} 23:30:00Z' AS published_at", "unhex('005c2e0a') AS payload",
            "array(named_struct('name', 'k', 'value', 'x')) AS properties", *([more] if more else []),
        )  # fmt: skip

    return make
