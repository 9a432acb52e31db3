"""What is due when: earliest first, whenever it was put in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.base.agenda import Agenda

EPOCH = 1_800_000_000.0
STEPS = st.lists(st.one_of(st.none(), st.floats(0, 3)), max_size=200)


@pytest.mark.parametrize("start", [0.0, EPOCH])
@settings(max_examples=50, deadline=None)
@given(steps=STEPS)
def test_entries_come_in_order_of_time_also_those_put_in_before_what_is_near(
    start: float, steps: list[float | None]
) -> None:
    """None: the first one is taken; a number: something is due so long after `start`."""
    agenda, expected = Agenda(), list[tuple[float, bytes]]()
    for place, step in enumerate(steps):
        if step is not None:
            entry = (start + step, place.to_bytes(2))
            agenda.put(*entry)
            expected.append(entry)
        assert len(agenda) == len(expected)
        assert agenda.first() == min(expected, default=None)
        if step is None and expected:
            taken = agenda.take()
            assert taken == min(expected)
            expected.remove(taken)


def test_an_empty_one_has_nothing_first() -> None:
    agenda = Agenda()
    assert agenda.first() is None
    agenda.put(EPOCH, b"name")
    assert agenda.first() == (EPOCH, b"name")
    assert agenda.take() == (EPOCH, b"name")
    assert (agenda.first(), len(agenda)) == (None, 0)
