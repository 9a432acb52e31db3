"""Parameters of a test that runs often with a few values and seldom with many."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def slow(values: Iterable[Any]) -> list[Any]:
    """Returns the values as parameters that only `make test-slow` takes."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def mostly_slow(values: Iterable[Any], *normal: Any) -> list[Any]:
    """Returns the values as parameters. The normal suite runs these few."""
    return [value if value in normal else pytest.param(value, marks=pytest.mark.slow) for value in values]


def in_turn(*axes: Iterable[Any]) -> list[Any]:
    """Returns all cells of a matrix. The normal suite takes the first value of each axis together, then the second of
    each, and so on, the shorter axes in turn: every value occurs, hardly any pair."""
    columns = [list(axis) for axis in axes]
    normal = {tuple(turn % len(column) for column in columns) for turn in range(max(map(len, columns)))}
    cells = []
    for place in product(*(range(len(column)) for column in columns)):
        values = [column[at] for column, at in zip(columns, place, strict=True)]
        cells.append(pytest.param(*values, marks=() if place in normal else pytest.mark.slow))
    return cells
