"""One stream's memory: each sequence once, whatever the order, within bounded gaps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.reader.streams import GAPS_MAX, Stream


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 40)))
def test_each_sequence_is_delivered_once_and_lateness_is_true(arrivals: list[int]):
    stream, seen = Stream(), set()
    for sequence in arrivals:
        assert stream.delivered(sequence) == (sequence in seen)
        if sequence not in seen:
            assert stream.deliver(sequence) == any(other > sequence for other in seen)
            seen.add(sequence)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 10_000), unique=True, max_size=300))
def test_gaps_stay_bounded_and_nothing_is_delivered_twice(arrivals: list[int]):
    stream, seen = Stream(), set()
    for sequence in arrivals:
        if stream.delivered(sequence):
            continue
        stream.deliver(sequence)
        seen.add(sequence)
        assert len(stream.gaps) <= GAPS_MAX
    assert all(stream.delivered(sequence) for sequence in seen)


def test_state_begins_with_the_first_delivery():
    stream = Stream()
    assert not stream.knows(7)
    stream.deliver(7)
    assert stream.knows(7)
    assert stream.knows(8)
    assert not stream.knows(6)
