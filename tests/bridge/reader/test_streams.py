"""One stream's memory: each sequence once, whatever the order, within bounded gaps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.reader import streams
from bridge.reader.streams import OPEN_MAX, Stream


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 40)))
def test_each_sequence_is_delivered_once_and_lateness_is_true(arrivals: list[int]):
    stream, seen = Stream(), set()
    for sequence in arrivals:
        assert stream.delivered(sequence) == (sequence in seen)
        if sequence not in seen:
            assert stream.mark_delivered(sequence, 0, 1) == any(other > sequence for other in seen)
            seen.add(sequence)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 10_000), unique=True, max_size=300))
def test_gaps_stay_bounded_and_nothing_is_delivered_twice(arrivals: list[int]):
    stream, seen = Stream(), set()
    for sequence in arrivals:
        if stream.delivered(sequence):
            continue
        stream.mark_delivered(sequence, 0, 1)
        seen.add(sequence)
        assert stream.head.gaps <= OPEN_MAX
    assert all(stream.delivered(sequence) for sequence in seen)


def test_what_the_chain_names_stays_missed_until_it_comes_and_what_lies_between_does_not_count():
    stream = Stream()
    stream.mark_delivered(10, 0, 1)
    stream.mark_delivered(60, 50, 1)  # 50 follows 40, which follows 20: three are missed
    assert [stream.mark_delivered(*late, 1) for late in ((50, 40), (20, 10), (40, 20))] == [True] * 3
    assert [stream.delivered(number) for number in (20, 40, 50, 60)] == [True] * 4
    assert not [*stream.head._missed]


def test_a_full_table_of_missed_numbers_forgets_the_oldest_rather_than_stand_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "GAPS_MAX", 3)
    stream = Stream()
    stream.mark_delivered(1, 0, 1)
    for n in range(1, 6):
        stream.mark_delivered(10 * n + 1, 10 * n, 1)
    assert stream.head.gaps == 3
    assert stream.delivered(10)
    assert not stream.delivered(50)


def test_state_begins_with_the_first_delivery_under_a_subscription():
    stream = Stream()
    assert not stream.knows_number(7, 1)
    stream.mark_delivered(7, 6, 1)
    assert [stream.knows_number(number, 1) for number in (6, 7, 8)] == [False, True, True]
    assert not stream.knows_number(8, 2)
    stream.mark_delivered(20, 19, 2)
    assert [stream.knows_number(number, 2) for number in (8, 20)] == [False, True]
    assert [stream.delivered(number) for number in (7, 8, 19)] == [True, False, False]
