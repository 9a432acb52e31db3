"""Looks of all parts of a process wake it together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.base import rhythm


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize("began", [0.0, 0.3, 0.9995, 7.77])
def test_looks_that_begin_apart_come_together(began: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(began)
    get: Callable[[], Clock] = lambda: clock  # noqa: E731
    monkeypatch.setattr(asyncio, "get_running_loop", get)
    first = rhythm.until_next(1.0)
    assert 0.5 < first <= 1.5
    clock.now += first
    for every_s in (1.0, 2.0):
        ends = clock.now + rhythm.until_next(every_s) + rhythm.PHASE_S
        assert abs(ends - round(ends)) < 1e-6


def test_a_timer_that_is_early_brings_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(5.0 - rhythm.PHASE_S - 0.0005)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    assert rhythm.until_next(1.0) == pytest.approx(1.0005)
