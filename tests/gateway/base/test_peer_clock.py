"""The other side's clock in a user property: how far ahead it is, and nothing where it says nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.peer_clock import DIGITS_MAX, PROPERTY, ahead_s, stamp


@given(st.floats(0, 4e9), st.floats(-1e6, 1e6))
def test_what_one_stamps_the_other_compares(now: float, off: float) -> None:
    there = max(0.0, now + off)
    found = ahead_s([("other", "x"), stamp(there)], now)
    assert found == pytest.approx(there - now, abs=0.002)


def test_the_first_that_makes_sense_counts() -> None:
    assert ahead_s([(PROPERTY, "x"), (PROPERTY, "5000"), (PROPERTY, "9000")], 4.0) == 1.0


@pytest.mark.parametrize("value", ["", "-5", "1.5", "x", "٣", "9" * (DIGITS_MAX + 1), " 5"])
def test_nonsense_says_nothing(value: str) -> None:
    assert ahead_s([(PROPERTY, value)], 0.0) is None


def test_who_says_nothing_is_not_compared() -> None:
    assert ahead_s([], 0.0) is None
    assert ahead_s([("clock", "5")], 0.0) is None
    assert ahead_s([(PROPERTY, "9" * DIGITS_MAX)], 0.0) is not None
