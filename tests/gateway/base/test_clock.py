"""A clock that nobody sets, and the wall beside it."""

from __future__ import annotations

import time

import pytest

from gateway.base import Clock


def test_time_is_measured_on_a_clock_that_nobody_sets_and_told_by_the_wall() -> None:
    steady, wall = [1_000.0], [1_800_000_000.0]
    clock = Clock(lambda: steady[0], lambda: wall[0])
    assert clock() == 1_000.0
    assert clock.wall.ms(clock()) == 1_800_000_000_000
    wall[0] -= 3_600  # somebody sets the clock back
    steady[0] += 5
    assert clock() == 1_005.0
    assert clock.wall.ms(1_005.0) == 1_799_996_400_000
    assert clock.wall.moment_of(1_799_996_400_000) == pytest.approx(1_005.0)


def test_by_default_it_is_the_machines() -> None:
    clock = Clock()
    assert abs(clock() - time.monotonic()) < 60
    assert abs(clock.wall.ms(clock()) / 1000 - time.time()) < 60
