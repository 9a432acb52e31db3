"""What a session counts: every drop once, and the bytes' share of a full queue not twice."""

from __future__ import annotations

import pytest

from gateway.mqtt5.actions import SessionFigures


@pytest.mark.parametrize("name", ["dropped_qos0", "dropped_queue_full", "dropped_expired", "dropped_too_large"])
def test_every_reason_counts(name: str) -> None:
    figures = SessionFigures()
    setattr(figures, name, 3)
    assert figures.dropped == 3


def test_what_found_no_room_for_its_bytes_is_counted_as_a_full_queue() -> None:
    assert SessionFigures(dropped_queue_full=5, dropped_queue_bytes=2).dropped == 5
