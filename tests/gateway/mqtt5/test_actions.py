"""What a session counts: every drop once."""

from __future__ import annotations

import pytest

from gateway.mqtt5.actions import SessionFigures, SessionLimits


@pytest.mark.parametrize("name", ["dropped_qos0", "dropped_queue_full", "dropped_expired", "dropped_too_large"])
def test_every_reason_counts(name: str) -> None:
    figures = SessionFigures()
    setattr(figures, name, 3)
    assert figures.dropped == 3


def test_limits_that_are_equal_stay_equal_whoever_is_told_that_one_is_reached() -> None:
    assert SessionLimits(reached=lambda bound, client_id: None) == SessionLimits()
