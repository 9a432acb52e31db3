"""Turns: origin by origin, so that a flood of one keeps nobody waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base.turns import Turns


def all_of(turns: Turns) -> list[str]:
    return [turns.take_name() for _ in range(len(turns))]


def test_origins_take_turns_and_each_keeps_its_order() -> None:
    turns = Turns()
    for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
        turns.add(name, name[:1].encode())
    assert all_of(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_flood_delays_another_by_one() -> None:
    turns = Turns()
    for number in range(1_000):
        turns.add(f"flood {number}", b"bad")
    turns.add("one", b"good")
    turns.take_name()
    assert turns.take_name() == "one"


def test_a_name_waits_once_where_it_was_first() -> None:
    turns = Turns()
    turns.add("x", b"a")
    turns.add("y", b"a")
    turns.add("x", b"b")
    assert len(turns) == 2
    assert all_of(turns) == ["x", "y"]


def test_who_is_dropped_waits_no_longer_and_may_come_again() -> None:
    turns = Turns()
    turns.add("x", b"a")
    turns.drop_name("x")
    turns.drop_name("never")
    assert len(turns) == 0
    with pytest.raises(KeyError):
        turns.take_name()
    turns.add("x", b"b")
    assert all_of(turns) == ["x"]


@given(st.lists(st.tuples(st.sampled_from("atd"), st.integers(0, 9), st.sampled_from([b"p", b"q", b"r"]))))
def test_whoever_waits_is_taken_once(steps: list[tuple[str, int, bytes]]) -> None:
    turns, waiting = Turns(), set()
    for what, number, origin in steps:
        if what == "a":
            turns.add(str(number), origin)
            waiting.add(str(number))
        elif what == "d":
            turns.drop_name(str(number))
            waiting.discard(str(number))
        elif waiting:
            waiting.remove(turns.take_name())
        assert len(turns) == len(waiting)
    assert sorted(all_of(turns)) == sorted(waiting)


def test_who_is_dropped_takes_nobody_of_its_origin_along() -> None:
    turns = Turns()
    for name in ("x", "y", "z"):
        turns.add(name, b"a")
    turns.drop_name("y")
    assert all_of(turns) == ["x", "z"]
