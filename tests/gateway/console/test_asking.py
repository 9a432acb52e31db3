"""A request to the API as operations see it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.console.asking import ApiRequest
from gateway.console.shown import LIST_MAX


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", 100), ("7", 7), ("0", 1), ("-3", 100), ("999999", LIST_MAX), ("x", 100), ("\u0664", 100), ("1e3", 100)],
)
def test_a_limit_is_a_number_within_bounds(text: str, limit: int) -> None:
    request: Any = None
    asked = ApiRequest("ann", "", "", {"limit": text}, {}, request, lambda: True)
    assert asked.limit == limit
