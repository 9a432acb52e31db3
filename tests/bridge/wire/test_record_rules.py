"""The rules of a record, for one and for columns."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.wire.record_rules import has_expired, is_of_a_time, is_topic


@pytest.mark.parametrize(("name", "holds"), [("a/b", True), ("", False), ("a/+", False), ("a\0", False), ("#", False)])
def test_a_topic_is_one_that_mqtt_has(name: str, holds: bool) -> None:
    assert is_topic(name) is holds


def test_times_and_deadlines_of_one_and_of_many_are_judged_alike() -> None:
    last_ms = 253_402_300_799_999
    times = np.array([0, last_ms, last_ms + 1])
    assert is_of_a_time(times).tolist() == [is_of_a_time(int(at)) for at in times] == [True, True, False]
    ages = np.array([10_000, 10_001])
    assert has_expired(0, 10, ages).tolist() == [has_expired(0, 10, int(at)) for at in ages] == [False, True]
