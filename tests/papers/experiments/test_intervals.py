"""Confidence intervals of means, beside published tables and many drawn samples."""

from __future__ import annotations

import pytest

from papers.experiments.draws import Draws
from papers.experiments.intervals import mean_interval


def test_three_values_by_hand() -> None:
    mean, half = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert mean_interval([7.0]) == (7.0, 0.0)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_the_mean_lies_within_19_of_20_times(count: int) -> None:
    draws, hits = Draws("intervals", count), 0
    for _ in range(1_000):
        # Nearly normal: the sum of twelve.
        mean, half = mean_interval([sum(draws.random() for _ in range(12)) for _ in range(count)])
        hits += abs(mean - 6.0) <= half
    assert 925 <= hits <= 972
