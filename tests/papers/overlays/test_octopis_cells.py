"""Cells: what goes in decides what comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from papers.overlays.octopis_cells import Cell, measure

STEADY = Cell("steady", "SNR", 1, 500, publishers=10, share=0.001)


def test_the_same_cell_gives_the_same_numbers_and_another_seed_others() -> None:
    assert measure(STEADY) == measure(STEADY)
    assert measure(STEADY) != measure(replace(STEADY, seed=2))


@pytest.mark.parametrize(("algorithm", "messages"), [("SNR", 74.0), ("BID", 366.0)])
def test_messages_of_a_subscription_are_exact(algorithm: str, messages: float) -> None:
    assert measure(Cell("subscribing", algorithm, 1, 0))["messages"] == messages


def test_flooded_subscriptions_take_longer() -> None:
    one, other = (measure(Cell("subscribing", name, 1, 0))["delay_s"] for name in ("SNR", "BID"))
    assert isinstance(one, float)
    assert isinstance(other, float)
    assert one < other


def test_a_burst_tells_its_maxima_and_when_it_is_over() -> None:
    found = measure(Cell("burst", "DNR", 1, 5_000, notifications=2_000, per_minute=100_000.0, share=0.001))
    maxima = found["maxima_s"]
    assert isinstance(maxima, list)
    assert max(maxima) > maxima[0]
    assert isinstance(found["under_1_s"], float)
    assert 0 < found["under_1_s"] <= 1
