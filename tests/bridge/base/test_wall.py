"""The time on the wall beside a steady clock: told in milliseconds, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base import Wall


def test_without_an_offset_steady_time_is_the_time_on_the_wall() -> None:
    assert Wall().ms(1_800_000_000.5) == 1_800_000_000_500


@given(st.floats(0, 1e9), st.floats(-1e9, 2e9))
def test_at_is_the_inverse_of_ms(now: float, offset_s: float) -> None:
    wall = Wall(offset_s)
    assert wall.moment_of(wall.ms(now)) == pytest.approx(now, abs=0.002)


def test_a_clock_that_is_set_moves_what_is_told_and_nothing_that_is_measured() -> None:
    wall = Wall(1_000.0)
    due = wall.moment_of(2_000_000)
    wall.offset_s += 3_600
    assert (due, wall.moment_of(2_000_000)) == (1_000.0, -2_600.0)
