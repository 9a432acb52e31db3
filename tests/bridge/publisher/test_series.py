"""Retained values of a member in one scope: the newest of each topic, sealed anew as a whole, then a floor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.publisher import Numbers, series
from bridge.publisher.series import FloorMark, Series, Snapshot, Value
from keys.batchheader import BLOCK_NUMBERS, RetainedId, retained_id
from keys.records import Records, encode

SCOPE = 7
RECORDS = Records.decode(encode(b"\4", [1], [b"t"], [b""], [b"x"]))


def value(topic: str, number: int, tombstone: bool = False) -> Value:
    return Value(retained_id(None, topic), number, tombstone, RECORDS)


def of(*values: Value, open_: bool = False) -> Series:
    made = Series(SCOPE, open_)
    for each in values:
        assert made.published(each)
    return made


def closed(made: Series, numbers: Numbers) -> FloorMark:
    for snapshot in made.begin(numbers, 0):
        made.acknowledged(snapshot)
    mark = made.close(numbers, 0)
    assert mark is not None
    return mark


@given(st.permutations([value(topic, number) for number, topic in enumerate("abcab", 1)]))
def test_the_newest_of_each_topic_is_kept_in_whatever_order_they_come(values: list[Value]) -> None:
    made = Series(SCOPE)
    for each in values:
        made.published(each)
    assert [each.number for each in made.values] == [3, 4, 5]
    assert len(made) == 3


def test_an_older_record_is_told_apart_from_news() -> None:
    made = of(value("a", 5))
    assert not made.published(value("a", 5))
    assert not made.published(value("a", 4))
    made.dropped(value("a", 5).id, 4)
    assert len(made) == 1, "that one was replaced before"
    made.dropped(value("a", 5).id, 5)
    made.dropped(value("a", 5).id, 5)
    assert len(made) == 0


def test_a_series_seals_each_live_value_under_a_number_of_its_own_above_the_floor() -> None:
    numbers = Numbers(0, 0)
    used = numbers.draw(SCOPE, 3, 0)[0][0]
    made = of(value("a", used), value("b", used + 1, tombstone=True), value("c", used + 2))
    snapshots = made.begin(numbers, 0)
    assert [snapshot.value.number for snapshot in snapshots] == [used, used + 2]
    firsts = [snapshot.first for snapshot in snapshots]
    assert len(set(firsts)) == 2
    assert min(firsts) > used + 2
    assert made.is_open
    assert not made.is_through
    ((after, _),) = numbers.draw(SCOPE, 1, 0)
    assert after // BLOCK_NUMBERS > max(firsts) // BLOCK_NUMBERS, "what is published next begins a block"


def test_when_all_have_a_series_a_floor_lists_what_lies_below_it() -> None:
    numbers = Numbers(0, 0)
    used = numbers.draw(SCOPE, 3, 0)[0][0]
    made = of(value("a", used), value("gone", used + 1, tombstone=True), value("c", used + 2))
    first, second = made.begin(numbers, 0)
    late = numbers.draw(SCOPE, 1, 0)[0][0]
    assert made.published(value("later", late))
    assert not made.acknowledged(first)
    assert not made.is_through
    assert made.acknowledged(second)
    mark = made.close(numbers, 0)
    assert mark is not None
    assert not made.is_through, "a floor is on its way already"
    floor = min(first.first, second.first) - 1
    assert mark.floor == floor
    assert mark.first > late
    assert set(mark.listed) == {RetainedId(value(t, 1).id, n) for t, n in (("a", used), ("c", used + 2))}
    assert [*mark.listed] == sorted(mark.listed), "headers list them ascending"
    made.closed()
    assert not made.is_open
    assert {each.number for each in made.values} == {used, used + 2, late}, "the tombstone goes with the floor"


def test_a_tombstone_above_the_floor_stays() -> None:
    numbers = Numbers(0, 0)
    made = of(value("a", numbers.draw(SCOPE, 1, 0)[0][0]))
    closed(made, numbers)
    later = numbers.draw(SCOPE, 1, 0)[0][0]
    made.published(value("a", later, tombstone=True))
    made.closed()
    assert [each.number for each in made.values] == [later]


def test_a_series_that_begins_anew_forgets_the_former() -> None:
    numbers = Numbers(0, 0)
    made = of(value("a", numbers.draw(SCOPE, 1, 0)[0][0]))
    (former,) = made.begin(numbers, 0)
    (again,) = made.begin(numbers, 0)
    assert again.first > former.first
    made.acknowledged(former)
    assert not made.is_through
    assert made.acknowledged(again)
    assert made.close(numbers, 0) is not None
    made.begin(numbers, 0)
    assert not made.is_through
    assert made.is_open


def test_a_restart_finds_an_open_series_and_an_empty_one_is_through_at_once() -> None:
    assert of(open_=True).is_through
    assert not of().is_through
    numbers = Numbers(0, 0)
    made = of()
    assert made.begin(numbers, 0) == []
    assert made.is_through


def test_an_empty_floor_says_that_nothing_below_it_is_retained() -> None:
    mark = closed(of(), Numbers(0, 0))
    assert mark.listed == ()
    assert mark.floor < mark.first


def test_what_is_too_much_for_a_floor_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "FLOOR_ENTRIES_MAX", 2)
    numbers = Numbers(0, 0)
    at = numbers.draw(SCOPE, 3, 0)[0][0]
    fits = of(value("a", at), value("b", at + 1))
    assert closed(fits, numbers)
    made = of(*(value(topic, at + n) for n, topic in enumerate("abc")))
    for snapshot in made.begin(numbers, 0):
        assert isinstance(snapshot, Snapshot)
        made.acknowledged(snapshot)
    assert made.close(numbers, 0) is None
    assert not made.is_open
    assert len(made) == 3
