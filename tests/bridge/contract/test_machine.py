"""The contract of every machine: its deadlines."""

from __future__ import annotations

from math import inf

import pytest

from bridge.contract import earliest


@pytest.mark.parametrize(
    ("deadlines", "expected"),
    [((), None), ((None, None), None), ((inf, None), None), ((3.0, None, 2.0, inf), 2.0), ((0.0, 1.0), 0.0)],
)
def test_the_earliest_deadline_counts_and_none_or_never_is_none(
    deadlines: tuple[float | None, ...], expected: float | None
) -> None:
    assert earliest(*deadlines) == expected
