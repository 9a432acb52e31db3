"""keys.replay: nothing passes twice, however it is ordered."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.envelope import SequenceWindow
from keys.errors import OurFault
from keys.replay import WINDOW_SIZE


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


def test_a_backlog_beside_what_is_new_passes_once_and_its_replay_never() -> None:
    """A gateway that was away sends old sequences between new ones; a replica that recorded them sends them again."""
    window = SequenceWindow()
    backlog, live = range(1, 200_000, 7), range(1_000_000, 1_200_000, 7)
    for pair in zip(backlog, live, strict=True):
        assert not any(window.seen(sequence) for sequence in pair)
    assert all(window.seen(sequence) for sequence in (*backlog, *live))
    assert not any(sequence + 1 in window for sequence in backlog)
    assert not window.seen(live[-1] + WINDOW_SIZE)
    assert window.seen(live[0]), "older than the window"
    assert window.seen(2), "never came, and nobody can tell any more"


def test_a_publisher_that_scatters_its_sequences_costs_bounded_memory() -> None:
    window = SequenceWindow(size=1 << 16)
    for sequence in range(0, 1 << 26, 4096):
        window.seen(sequence)
    assert len(window._blocks) <= (1 << 16) // 4096 + 2


def test_what_came_in_full_costs_no_bitmap() -> None:
    window = SequenceWindow()
    for sequence in range(100_000):
        window.seen(sequence)
    assert sum(isinstance(bits, bytearray) for _, bits in window._blocks.values()) <= 1


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 40_000), st.booleans())
def test_a_window_comes_back_from_its_bytes(blocks: list[int], size: int, full: bool) -> None:
    window = SequenceWindow(size)
    for block in blocks:
        for sequence in range(block * 4096, block * 4096 + (4096 if full else 5)):
            window.seen(sequence)
    again = SequenceWindow.from_bytes(window.to_bytes(), size)
    assert again.highest == window.highest
    assert [s in again for s in range(0, 20_000, 3)] == [s in window for s in range(0, 20_000, 3)]


@pytest.mark.parametrize("content", [b"", b"1234567", bytes(8) + b"1", bytes(8 + 12 + 511)])
def test_what_is_no_window_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="cut short"):
        SequenceWindow.from_bytes(content)


def test_an_empty_window_is_our_fault() -> None:
    with pytest.raises(OurFault):
        SequenceWindow(size=0)


def test_what_it_can_tell_about_is_the_last_so_many() -> None:
    window = SequenceWindow(size=8)
    assert window.highest == -1
    assert window.reaches(0)
    window.seen(100)
    assert [window.reaches(sequence) for sequence in (92, 93, 101)] == [False, True, True]
    assert [sequence in window for sequence in (92, 93, 99, 100, 101)] == [True, False, False, True, False]
    assert SequenceWindow(size=1).reaches(0)


def test_to_ask_marks_nothing() -> None:
    window = SequenceWindow()
    assert 5 not in window
    assert not window.seen(7)
    assert 5 not in window
    assert not window.seen(5)


@pytest.mark.parametrize("sequence", [0, 7, 8, 4095, 4096, 8191, 12_345])
def test_every_sequence_has_a_bit_of_its_own(sequence: int) -> None:
    window = SequenceWindow()
    window.seen(20_000)
    window.seen(sequence)
    near = {*range(sequence - 9, sequence + 10), sequence - 4096, sequence + 4096}
    assert [other for other in near if other >= 0 and other in window] == [sequence]


def test_two_blocks_within_the_window_never_share_a_place() -> None:
    size = 3 * 4096
    window = SequenceWindow(size)
    for sequence in (4096, 2 * 4096, 3 * 4096, 4 * 4096 - 1):
        assert not window.seen(sequence)
    assert all(window.seen(sequence) for sequence in (4096, 2 * 4096, 3 * 4096))
    assert not window.seen(4 * 4096)
    assert window.seen(4 * 4096 - 1)


def test_a_block_that_was_full_and_is_older_than_the_window_makes_room() -> None:
    window = SequenceWindow(size=4096)
    for sequence in range(4096):
        window.seen(sequence)
    later = 3 * 4096  # of the same place
    assert not window.seen(later)
    assert later in window
    assert not window.seen(later + 1)


def test_its_bytes_are_runs_of_full_blocks_and_bitmaps_of_others() -> None:
    window = SequenceWindow()
    for sequence in [*range(2 * 4096), *range(3 * 4096, 4 * 4096), *range(5 * 4096, 6 * 4096), 2 * 4096 + 9]:
        window.seen(sequence)
    bits = bytes(1) + b"\2" + bytes(510)
    expected = struct.pack(">q", 6 * 4096 - 1) + struct.pack(">QI", 0, 2) + struct.pack(">QI", 2, 0) + bits
    expected += struct.pack(">QI", 3, 1) + struct.pack(">QI", 5, 1)
    assert window.to_bytes() == expected
    again = SequenceWindow.from_bytes(expected)
    assert again.to_bytes() == expected
    assert [again.seen(sequence) for sequence in (0, 2 * 4096 + 9, 2 * 4096 + 8, 4 * 4096)] == [
        True,
        True,
        False,
        False,
    ]


def test_what_claims_millions_of_full_blocks_costs_no_more_than_a_window() -> None:
    claimed = struct.pack(">q", 5) + struct.pack(">QI", 0, 2**32 - 1)
    assert len(SequenceWindow.from_bytes(claimed, 1 << 16)._blocks) == (1 << 16) // 4096 + 2


def test_a_file_that_is_cut_anywhere_is_refused() -> None:
    window = SequenceWindow()
    for sequence in [*range(4096), 5000]:
        window.seen(sequence)
    content = window.to_bytes()
    for size in range(len(content)):
        if size in (8, 20):  # a whole file of what came before
            continue
        with pytest.raises(ValueError, match="cut short"):
            SequenceWindow.from_bytes(content[:size])


def test_what_an_older_block_of_the_same_place_holds_is_not_said_of_a_younger_one() -> None:
    window = SequenceWindow(size=4096)
    for sequence in range(4096):
        window.seen(sequence)
    window.seen(4 * 4096 + 5)
    younger = 3 * 4096 + 100  # its place is that of the first block, which is long out of the window
    assert younger not in window
    assert not window.seen(younger)
    assert younger in window
