"""Copies are told by what they hold and by which way they came, for a while, and a bounded number of them."""

from __future__ import annotations

import pytest

from gateway.bridging import twins
from gateway.bridging.twins import TWIN_S, UNMARKED, Twins


def test_what_two_ways_bring_is_one_message_if_both_passed_one_broker() -> None:
    one = Twins()
    assert not one.is_copy("l1", "t", b"x", ["m"], 0.0)
    assert not one.is_copy("l1", "t", b"x", ["m"], 0.1)  # the publisher said it twice
    assert not one.is_copy("l2", "t", b"x", ["n"], 0.2)  # of another broker
    assert one.is_copy("l2", "t", b"x", ["m"], 0.3)
    assert one.is_copy("l2", "t", b"x", ["m", "k"], 0.4)
    assert not one.is_copy("l2", "t", b"x", ["m"], 0.5)  # both are settled
    assert not one.is_copy("l1", "t", b"y", ["m"], 0.6)
    assert not one.is_copy("l1", "u", b"x", ["m"], 0.7)


def test_what_three_ways_bring_is_one_message_and_what_one_of_them_brings_again_is_another() -> None:
    one = Twins()
    for second in range(3):
        found = [one.is_copy(way, "t", b"x", ["m"], second + 0.1) for way in ("l1", "l2", "f")]
        assert found == [False, True, True]


def test_of_equal_messages_without_end_the_youngest_are_remembered() -> None:
    one = Twins()
    for number in range(2 * twins.EQUAL_MAX):
        assert not one.is_copy("l1", "t", b"x", ["m"], 0.001 * number)
        assert one.is_copy("l2", "t", b"x", ["m"], 0.001 * number)
    assert one._count == twins.EQUAL_MAX


@pytest.mark.attack(171)
@pytest.mark.parametrize("flood", ["plant/evil/{}", "plant/evil/one", "plant/evil/{}/a/b"])
def test_a_flood_below_one_prefix_makes_no_copy_below_another_pass(flood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins, "TWINS_MAX", 100)
    one = Twins()
    for number in range(20):
        assert not one.is_copy("l1", f"plant/good/{number}", b"x", ["m"], 0.0)
    for number in range(1_000):
        one.remember_leaving("out", flood.format(number), b"%d" % number, 0.1, has_marks=False)
    assert one._count <= 100
    assert all(one.is_copy("l2", f"plant/good/{number}", b"x", ["m"], 0.2) for number in range(20))
    assert one.is_copy("in", flood.format(999), b"999", [], 0.2), "of the flood the youngest are remembered"


def test_copies_by_ever_new_ways_fill_no_memory() -> None:
    one = Twins()
    assert [one.is_copy(f"l{n}", "t", b"x", ["m"], 0.0) for n in range(20)].count(False) == 2
    assert all(len(each.ways) <= twins.WAYS_MAX for kept in one._seen.values() for each in kept)


def test_what_left_without_marks_comes_back_by_any_other_way_once() -> None:
    one = Twins()
    one.remember_leaving("out", "t", b"x", 0.0, has_marks=False)
    assert not one.is_copy("out", "t", b"x", [], 0.1)
    assert one.is_copy("in", "t", b"x", ["b"], 0.2)
    assert not one.is_copy("in", "t", b"x", ["b"], 0.3)


def test_what_left_with_marks_is_its_copy_only_where_they_got_lost() -> None:
    one = Twins()
    one.remember_leaving("out", "t", b"x", 0.0, has_marks=True)
    assert not one.is_copy("in", "t", b"x", ["b"], 0.1)
    assert one.is_copy("in", "t", b"x", ["b", UNMARKED], 0.2)


def test_what_only_passes_through_is_no_copy_of_what_came_by_that_way_before() -> None:
    one = Twins()
    for second in range(5):
        assert not one.is_copy("edge", "t", b"21.5", [], 0.2 * second)
        one.remember_leaving("cloud", "t", b"21.5", 0.2 * second, has_marks=False)


def test_a_message_without_marks_meets_its_copy_at_a_bridge_of_ours_and_no_other_client() -> None:
    one = Twins()
    assert not one.is_copy("client a", "t", b"x", [UNMARKED], 0.0, "c", "b")
    assert not one.is_copy("client b", "t", b"x", [UNMARKED], 0.1, "c", "b")
    assert one.is_copy("bridge", "t", b"x", [UNMARKED, "r"], 0.2, "b", "c")


def test_nothing_is_remembered_for_long_nor_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Twins()
    one.remember_leaving("out", "t", b"x", 0.0, has_marks=False)
    assert not one.is_copy("in", "t", b"x", [], TWIN_S + 0.1)
    monkeypatch.setattr(twins, "TWINS_MAX", 10)
    for number in range(50):
        one.remember_leaving("out", "t", b"%d" % number, 10.0, has_marks=False)
    assert one._count <= 10
    assert one.is_copy("in", "t", b"49", [], 10.1)
    assert not one.is_copy("in", "t", b"9", [], 10.1)
    assert not one.is_copy("in", "t", b"last", [], 60.0)
    one.remember_leaving("out", "t", b"", 90.0, has_marks=False)
    assert one._count == sum(map(len, one._seen.values())) == sum(map(len, one._of_topic.values()))
    assert set(one._of_topic) == {"t"}
    assert len(one._weights) == 1
