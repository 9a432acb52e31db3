"""keys.replay: nothing passes twice, however it is ordered."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.envelope import SequenceWindow
from keys.errors import OurFault


def test_the_second_time_is_seen() -> None:
    window = SequenceWindow()
    assert [window.seen(sequence) for sequence in (5, 5, 0, 7, 6, 7, 0)] == [
        False,
        True,
        False,
        False,
        False,
        True,
        True,
    ]
    assert window.highest == 7


def test_what_is_older_than_the_window_counts_as_seen() -> None:
    window = SequenceWindow(size=8)
    assert not window.seen(100)
    assert not window.seen(93)
    assert window.seen(92)
    assert not window.seen(101)
    assert window.seen(93)


def test_a_great_leap_forgets_nothing_into_replay() -> None:
    window = SequenceWindow(size=8)
    assert not window.seen(3)
    assert not window.seen((1 << 64) - 1)
    assert window.seen(3)
    assert window.seen((1 << 64) - 1)


@settings(max_examples=80)
@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 20))
def test_the_window_agrees_with_a_set(sequences: list[int], size: int) -> None:
    window, passed, highest = SequenceWindow(size), set(), -1
    for sequence in sequences:
        expected = sequence in passed or sequence <= highest - size
        assert window.seen(sequence) is expected
        highest = max(highest, sequence)
        passed.add(sequence)


def test_an_empty_window_is_our_fault() -> None:
    with pytest.raises(OurFault):
        SequenceWindow(size=0)
