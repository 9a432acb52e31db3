"""Parameters of a test that runs often with a few values and seldom with many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(values: Iterable[Any]) -> list[Any]:
    """Returns the values as parameters that only `make test-slow` takes."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
