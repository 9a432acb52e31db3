"""Confidence intervals of means: Student's t, 95 %."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

STUDENT_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Standard errors on each side of a mean within which it lies with a probability of 95 %, by values less one."""
NORMAL_95 = 1.96


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and half of its 95 % confidence interval; 0 of a single value, which has none."""
    freedom = len(values) - 1
    if not freedom:
        return values[0], 0.0
    errors = STUDENT_95[freedom - 1] if freedom <= len(STUDENT_95) else NORMAL_95
    return fmean(values), errors * stdev(values) / sqrt(len(values))
