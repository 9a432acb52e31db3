"""keys.replay: nothing passes twice, however it is ordered."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.envelope import SequenceWindow
from keys.errors import OurFault
from keys.replay import BLOCK_NUMBERS, BLOCKS_MAX

pytestmark = pytest.mark.invariant(40)


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
    """Two blocks are remembered, wherever they lie: a third pushes the lowest out; nothing below is told apart."""
    window = SequenceWindow(blocks=2)
    low, middle, high = 5 * BLOCK_NUMBERS, 9 * BLOCK_NUMBERS, BLOCK_NUMBERS << 40
    assert not window.seen(low)
    assert not window.seen(middle)
    assert (window.seen(low - 1), window.seen(low + 1)) == (True, False)
    assert not window.seen(high)
    assert (low + 2 in window, window.seen(low + 2), window.seen(middle - 1)) == (True, True, True)
    assert (window.seen(middle), window.seen(middle + 1)) == (True, False)


def test_a_great_leap_forgets_nothing_into_replay() -> None:
    window = SequenceWindow(blocks=1)
    assert not window.seen(3)
    assert not window.seen((1 << 64) - 1)
    assert window.seen(3)
    assert window.seen((1 << 64) - 1)


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=80), st.integers(1, 6))
def test_the_window_agrees_with_sets(pairs: list[tuple[int, int]], blocks: int) -> None:
    window, passed, floor = SequenceWindow(blocks), {}, 0
    for block, at in pairs:
        sequence = block * BLOCK_NUMBERS + at
        expected = block < floor or at in passed.get(block, ())
        assert (sequence in window) is expected
        assert window.seen(sequence) is expected
        if block >= floor:
            passed.setdefault(block, set()).add(at)
        if len(passed) > blocks:
            del passed[min(passed)]
        floor = min(passed) if len(passed) == blocks else floor


def test_a_backlog_beside_what_is_new_passes_once_and_its_replay_never() -> None:
    """A gateway that was away sends old sequences between new ones; a replica that recorded them sends them again."""
    window = SequenceWindow()
    backlog, live = range(1, 200_000, 7), range(1 << 50, (1 << 50) + 200_000, 7)
    for pair in zip(backlog, live, strict=True):
        assert not any(window.seen(sequence) for sequence in pair)
    assert all(window.seen(sequence) for sequence in (*backlog, *live))
    assert not any(sequence + 1 in window for sequence in backlog)
    for block in range(1, BLOCKS_MAX + 1):
        assert not window.seen(live[-1] + block * BLOCK_NUMBERS)
    assert window.seen(live[0]), "older than the window"
    assert window.seen(2), "never came, and nobody can tell any more"


def test_a_publisher_that_scatters_its_sequences_costs_bounded_memory() -> None:
    window = SequenceWindow(blocks=16)
    for sequence in range(0, 1 << 26, BLOCK_NUMBERS):
        window.seen(sequence)
    assert len(window._blocks) == 16


def test_what_came_in_full_costs_no_bitmap() -> None:
    window = SequenceWindow()
    for sequence in range(100_000):
        window.seen(sequence)
    assert sum(isinstance(bits, bytearray) for bits in window._blocks.values()) <= 1


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 5), st.booleans())
def test_a_window_comes_back_from_its_bytes(came: list[int], blocks: int, full: bool) -> None:
    window = SequenceWindow(blocks)
    for block in came:
        for sequence in range(block * 4096, block * 4096 + (4096 if full else 5)):
            window.seen(sequence)
    again = SequenceWindow.from_bytes(window.to_bytes(), blocks)
    assert again.highest == window.highest
    assert [s in again for s in range(0, 20_000, 3)] == [s in window for s in range(0, 20_000, 3)]


@pytest.mark.parametrize("content", [b"", b"1234567", bytes(16) + b"1", bytes(16 + 12 + 511)])
def test_what_is_no_window_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="cut short"):
        SequenceWindow.from_bytes(content)


def test_an_empty_window_is_our_fault() -> None:
    with pytest.raises(OurFault):
        SequenceWindow(blocks=0)


def test_to_ask_marks_nothing() -> None:
    window = SequenceWindow()
    assert (window.highest, window.reaches(0)) == (-1, True)
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


def test_its_bytes_are_runs_of_full_blocks_and_bitmaps_of_others() -> None:
    window = SequenceWindow()
    for sequence in [*range(2 * 4096), *range(3 * 4096, 4 * 4096), *range(5 * 4096, 6 * 4096), 2 * 4096 + 9]:
        window.seen(sequence)
    bits = bytes(1) + b"\2" + bytes(510)
    expected = struct.pack(">qQ", 6 * 4096 - 1, 0) + struct.pack(">QI", 0, 2) + struct.pack(">QI", 2, 0) + bits
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
    claimed = struct.pack(">qQ", 5, 0) + struct.pack(">QI", 0, 2**32 - 1)
    assert len(SequenceWindow.from_bytes(claimed, 16)._blocks) == 16


def test_a_file_that_is_cut_anywhere_is_refused() -> None:
    window = SequenceWindow()
    for sequence in [*range(4096), 5000]:
        window.seen(sequence)
    content = window.to_bytes()
    for size in range(len(content)):
        if size in (16, 28):  # a whole file of what came before
            continue
        with pytest.raises(ValueError, match="cut short"):
            SequenceWindow.from_bytes(content[:size])
