"""Phi-accrual: learned intervals, the moment of suspicion, and that it is the right one."""

from __future__ import annotations

import random
from math import log10

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.devices.regularity import DEVIATION_MIN, LEARNED_AFTER, PHI_MAX, THRESHOLD, WINDOW, Regularity

NOW = 1_800_000_000.0


def spoken(intervals: list[float]) -> tuple[Regularity, float]:
    source, now = Regularity(), NOW
    source.note_heard(now)
    for interval in intervals:
        now += interval
        source.note_heard(now)
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
    source.note_resumed(now + 3_600)
    assert source.mean_s == pytest.approx(1.0)
    assert source.phi(now + 3_600) < 1


def test_honest_sources_are_rarely_suspected() -> None:
    rng = random.Random(7)
    source, now, suspected = Regularity(), NOW, 0
    for _ in range(20_000):
        now += rng.gauss(1.0, DEVIATION_MIN)
        suspected += source.phi(now) >= THRESHOLD
        source.note_heard(now)
    assert suspected <= 1


QUANTILE = 5.612001244  # of the normal distribution: one in 10^8 is beyond


@pytest.mark.parametrize(
    ("intervals", "mean_s", "deviation_s"),
    [
        ([10.0] * 8, 10.0, 1.0),  # a tenth of the mean at least
        ([0.1] * 8, 0.1, 0.05),  # and never less than a twentieth of a second
        ([5.0, 15.0] * 4, 10.0, 5.0),
        ([1_000.0, *[10.0] * WINDOW], 10.0, 1.0),  # the oldest is forgotten whole
        ([110.0, *[10.0] * (WINDOW - 1)], 11.0, 9.9498744),  # and not before its time
    ],
)
def test_the_moment_of_suspicion_is_that_of_the_distribution(
    intervals: list[float], mean_s: float, deviation_s: float
) -> None:
    source, now = spoken(intervals)
    at = source.suspicious_at()
    assert at is not None
    assert at - now == pytest.approx(mean_s + QUANTILE * deviation_s, rel=1e-5)
    assert source.mean_s == pytest.approx(mean_s)
    assert source.phi(now + mean_s) == pytest.approx(-log10(0.5), rel=1e-4)


def test_who_is_believed_to_be_unsteadier_is_given_as_much() -> None:
    source = Regularity(deviation_min_s=30.0)
    for place in range(LEARNED_AFTER + 1):
        source.note_heard(NOW + 10.0 * place)
    at = source.suspicious_at()
    assert at is not None
    assert at - (NOW + 10.0 * LEARNED_AFTER) == pytest.approx(10 + QUANTILE * 30, rel=1e-5)
    assert source.regular, "it is no less even than it was believed to be"


@pytest.mark.parametrize(
    ("intervals", "regular"),
    [
        ([10.0] * 7, False),  # two messages are no habit
        ([10.0] * 8, True),
        ([7.5] * 8, True),  # a minute
        ([7.0] * 8, False),  # a burst
        ([5.0, 15.0] * 4, True),  # half of the mean
        ([4.0, 16.0] * 4, False),
    ],
)
def test_what_is_a_habit(intervals: list[float], regular: bool) -> None:
    assert spoken(intervals)[0].regular is regular


def test_times_that_go_back_teach_nothing_and_two_at_once_are_none_apart() -> None:
    source = Regularity()
    assert source.mean_s is None
    source.note_heard(NOW)
    source.note_heard(NOW - 5)
    assert source.mean_s is None
    source.note_heard(NOW + 5)
    assert source.mean_s == 10.0
    source.note_heard(NOW + 5)
    assert source.mean_s == 5.0
