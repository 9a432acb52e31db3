"""What a reader has seen of one member: exactly that, in bounded memory, before and after a file."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.reader import streams
from bridge.reader.streams import GAPS_MAX, MARKS_MAX, Head

STEP = st.tuples(st.booleans(), st.integers(1, 30), st.integers(0, 5), st.integers(0, 30))


def numbers(runs: list[tuple[int, int]]) -> set[int]:
    return {number for low, high in runs for number in range(low, high + 1)}


@given(st.lists(STEP, max_size=25))
def test_while_nothing_is_forgotten_unseen_is_what_was_neither_taken_nor_marked(
    steps: list[tuple[bool, int, int, int]],
) -> None:
    head, seen = Head(), set[int]()
    for marks, first, length, previous in steps:
        if marks:
            assert head.mark_number(first)
            seen.add(first)
        else:
            head.mark_successors(first, first + length, min(previous, first - 1))
            seen |= set(range(first, first + length + 1))
    for low, high in ((1, 40), (5, 20), (17, 17)):
        runs = head.unseen(low, high)
        assert numbers(runs) == set(range(low, high + 1)) - seen
        assert runs == sorted(runs)
        assert all(one[1] + 1 < two[0] for one, two in pairwise(runs)), "runs that touch are one"
    assert [head.has_seen(number) for number in range(1, 40)] == [number in seen for number in range(1, 40)]
    again = Head.decode(head.encode())
    assert (again.number, again.unseen(1, 40), again.gaps) == (head.number, head.unseen(1, 40), head.gaps)


def test_a_head_survives_a_file() -> None:
    head = Head()
    head.mark_successors(10, 12, 5)
    head.mark_successors(20, 20, 12)
    assert head.mark_number(30)
    again = Head.decode(head.encode())
    assert [again.unseen(1, 40)] == [head.unseen(1, 40)] == [[(1, 9), (13, 19), (21, 29), (31, 40)]]
    assert again.number == 20


def test_a_jump_of_more_than_can_be_counted_costs_one_interval() -> None:
    head = Head()
    head.mark_successors(1 << 62, 1 << 62, (1 << 62) - 1)
    assert head.gaps == 1


def test_what_is_behind_the_head_and_in_front_of_it_joins_to_one_run() -> None:
    head = Head()
    head.mark_successors(1, 2, 0)
    head.mark_successors(6, 6, 2)
    assert head.unseen(3, 9) == [(3, 5), (7, 9)]
    late = Head()
    late.mark_successors(4, 4, 3)
    late.mark_number(7)
    assert late.unseen(1, 9) == [(1, 3), (5, 6), (8, 9)]
    assert late.number == 4, "a mark is no head"


def test_what_the_chain_names_is_missed_and_the_rest_is_open() -> None:
    """Only missed numbers are held against a full table; open ones go first."""
    head = Head()
    head.mark_successors(10, 10, 4)
    assert (head.gaps, head.unseen(1, 10)) == (2, [(1, 9)])
    assert [*head._missed] == [(1, 4)]
    assert [*head._open] == [(5, 9)]
    head.mark_successors(2, 3, 0)
    head.mark_successors(7, 7, 0)
    assert (head.number, head.unseen(1, 10), head.gaps) == (10, [(1, 1), (4, 6), (8, 9)], 4)


def test_a_mark_behind_the_head_fills_its_gap() -> None:
    head = Head()
    head.mark_successors(10, 10, 4)
    assert head.mark_number(2)
    assert head.mark_number(8)
    assert head.unseen(1, 10) == [(1, 1), (3, 7), (9, 9)]


def test_marks_that_the_head_passes_are_no_gaps() -> None:
    head = Head()
    for number in (3, 6, 9):
        assert head.mark_number(number)
    head.mark_successors(7, 7, 4)
    assert (head.number, head.unseen(1, 10)) == (7, [(1, 2), (4, 5), (8, 8), (10, 10)])
    assert [*head._marks] == [(9, 9)]


def test_a_full_table_of_marks_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MARKS_MAX", 2)
    head = Head()
    assert [head.mark_number(number) for number in (2, 4, 6, 4)] == [True, True, False, True]
    assert not head.has_seen(6)
    assert MARKS_MAX == 4096, "the real bound"


def test_no_missed_number_is_forgotten_and_open_ones_go_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "GAPS_MAX", 3)
    head = Head()
    for number in (2, 4, 6, 8, 10):  # nobody names what is between
        head.mark_successors(number, number, 0)
    assert head.gaps == 3
    assert head.unseen(1, 10) == [(5, 5), (7, 7), (9, 9)]
    for number in (12, 14, 16):
        assert not head.is_full_for(number - 1)
        head.mark_successors(number, number, number - 1)
    assert head.unseen(1, 16) == [(11, 11), (13, 13), (15, 15)]
    assert head.is_full_for(17)
    assert not head.is_full_for(16), "it follows the head"
    head.mark_number(17)
    assert not head.is_full_for(17), "what it names was delivered before its turn"
    assert GAPS_MAX == 4096, "the real bound"


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:-1], lambda data: data + b"x", lambda data: bytes([2]) + data[1:],
    lambda data: data[:-16] + data[-8:] + data[-16:-8],
])  # fmt: skip
def test_a_damaged_file_is_refused(damage) -> None:
    head = Head()
    head.mark_successors(10, 10, 4)
    with pytest.raises(ValueError, match=r"head|intervals"):
        Head.decode(damage(head.encode()))


def test_a_head_takes_the_marks_of_another() -> None:
    one, other = Head(), Head()
    one.mark_successors(3, 3, 1)  # 1 is missed
    for number in (1, 5, 6, 9):
        assert other.mark_number(number)
    one.mark_also(other)
    assert numbers(one.unseen(1, 10)) == {2, 4, 7, 8, 10}
