"""Values as JSON can hold them, within an allowance."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from spark_ingest.payloads.messagepack import NESTING_MAX, VALUES_MAX, PayloadError
from spark_ingest.payloads.plain import PlainValues, json_text


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"x", "eA=="), (Decimal("1.50"), "1.50"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
        ({1: (2, 3)}, {"1": [2, 3]}),
        (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00+00:00"), (None, None), (True, True),
    ],
)  # fmt: skip
def test_each_kind_of_value_has_its_form(value: Any, wanted: Any) -> None:
    assert PlainValues().plain(value) == wanted


def test_more_values_or_levels_than_allowed_are_refused() -> None:
    deep: Any = 1
    for _ in range(NESTING_MAX + 1):
        deep = [deep]
    for value, why in ((deep, "nested deeper"), ([0] * (VALUES_MAX + 1), "values")):
        with pytest.raises(PayloadError, match=why):
            PlainValues().plain(value)


def test_text_is_compact_and_half_a_surrogate_pair_is_refused() -> None:
    assert json_text({"a": ["\u00e9", 1]}) == '{"a":["\u00e9",1]}'
    with pytest.raises(PayloadError):
        json_text("\ud800")
