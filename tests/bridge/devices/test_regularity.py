"""Phi-accrual: learned intervals, the moment of suspicion, and that it is the right one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.devices.regularity import DEVIATION_MIN, LEARNED_AFTER, PHI_MAX, THRESHOLD, WINDOW, Regularity

NOW = 1_800_000_000.0


def spoken(intervals: list[float]) -> tuple[Regularity, float]:
    source, now = Regularity(), NOW
    source.heard(now)
    for interval in intervals:
        now += interval
        source.heard(now)
    return source, now


def test_nothing_is_suspicious_before_a_habit_is_known() -> None:
    source, now = spoken([1.0] * (LEARNED_AFTER - 1))
    assert source.suspicious_at() is None
    assert source.phi(now + 1_000) == 0
    source, now = spoken([1.0] * LEARNED_AFTER)
    assert source.suspicious_at() is not None
    assert source.phi(now + 1_000) == PHI_MAX


@pytest.mark.parametrize("interval", [0.1, 1.0, 60.0])
def test_a_steady_source_is_missed_soon_after_its_time(interval: float) -> None:
    source, now = spoken([interval] * 50)
    at = source.suspicious_at()
    assert at is not None
    assert now + interval < at < now + interval * 2 + 0.5
    assert source.mean_s == pytest.approx(interval)


def test_an_unsteady_source_is_given_more_time() -> None:
    rng = random.Random(1)
    steady, now = spoken([1.0] * 50)
    unsteady, later = spoken([rng.uniform(0.2, 1.8) for _ in range(50)])
    first, second = steady.suspicious_at(), unsteady.suspicious_at()
    assert first is not None
    assert second is not None
    assert first - now < second - later


@settings(max_examples=50)
@given(st.lists(st.floats(0.01, 100), min_size=LEARNED_AFTER, max_size=150), st.floats(0.5, 12))
def test_phi_reaches_the_threshold_at_the_foretold_moment(intervals: list[float], threshold: float) -> None:
    source, now = spoken(intervals)
    at = source.suspicious_at(threshold)
    assert at is not None
    assert source.phi(at) == pytest.approx(threshold, rel=1e-3)
    assert source.phi(now) <= source.phi((now + at) / 2) <= source.phi(at)


def test_habits_change_within_a_window() -> None:
    source, _ = spoken([1.0] * 50 + [10.0] * WINDOW)
    assert source.mean_s == pytest.approx(10.0)


def test_a_silence_with_a_reason_teaches_nothing() -> None:
    source, now = spoken([1.0] * 20)
    source.resumed(now + 3_600)
    assert source.mean_s == pytest.approx(1.0)
    assert source.phi(now + 3_600) < 1


def test_honest_sources_are_rarely_suspected() -> None:
    rng = random.Random(7)
    source, now, suspected = Regularity(), NOW, 0
    for _ in range(20_000):
        now += rng.gauss(1.0, DEVIATION_MIN)
        suspected += source.phi(now) >= THRESHOLD
        source.heard(now)
    assert suspected <= 1
