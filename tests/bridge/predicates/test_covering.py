"""What is implied holds; what is widened leaves nothing out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.predicates import Attributes, Name, Predicate, Value, implies, parse_where, widen
from tests.bridge.predicates.drawn import attributes, predicates


@given(predicates, predicates, st.lists(attributes, max_size=20))
def test_what_is_implied_holds(narrow: Predicate, wide: Predicate, messages: list[dict[Name, Value]]) -> None:
    if implies(narrow, wide):
        assert all(wide.holds_for(message) for message in messages if narrow.holds_for(message))


@given(predicates)
def test_everything_implies_itself(one: Predicate) -> None:
    assert implies(one, one)


@pytest.mark.parametrize(("narrow", "wide"), [
    ("a > 2", "a > 1"), ("a > 2", "a >= 2"), ("a = 3", "a > 2"), ("a = 3 AND b = 1", "a = 3"), ("a = 'x'", "a <> 'y'"),
    ("a > 2", "a <> 1"), ("a > 2", "a <> 'x'"), ("a > 2 AND a < 1", "b = 9"), ("a >= 1 AND a <= 1", "a = 1"),
    ("a = 1", "a = 1 OR b = 2"), ("a = 1 OR a = 2", "a > 0"), ("a > 1 AND a <> 2", "a <> 2"), ("a < 1", "a <= 1"),
])  # fmt: skip
def test_implications_that_are_seen(narrow: str, wide: str) -> None:
    assert implies(parse_where(narrow), parse_where(wide))


@pytest.mark.parametrize(("narrow", "wide"), [
    ("a >= 2", "a > 2"), ("a > 1", "a > 2"), ("a = 3", "a = 3 AND b = 1"), ("a <> 1", "a > 1"), ("a > 1", "a = 2"),
    ("a <= 1", "a < 1"), ("a <> 1", "a <> 2"), ("a = 'x'", "a > 1"),
])  # fmt: skip
def test_what_is_not_implied(narrow: str, wide: str) -> None:
    assert not implies(parse_where(narrow), parse_where(wide))


@given(st.lists(predicates, max_size=12), st.integers(1, 6), st.lists(attributes, max_size=20))
def test_a_cover_holds_wherever_one_of_them_does(
    many: list[Predicate], most: int, messages: list[dict[Name, Value]]
) -> None:
    cover = widen(many, most)
    assert len(cover.conjunctions) <= most
    for message in messages:
        assert cover.holds_for(message) or not any(one.holds_for(message) for one in many)


def test_a_cover_of_none_never_holds_and_a_short_one_is_exact() -> None:
    assert not widen([]).holds_for({("a",): 1.0})
    cover = widen([parse_where("a > 1 AND a < 3"), parse_where("a = 2"), parse_where("a > 5 AND a < 4")])
    assert cover == parse_where("a > 1 AND a < 3")


def test_neighbours_are_joined_first() -> None:
    cover = widen([parse_where(f"symbol = 's{at % 2}' AND price = {at}") for at in range(100)], 2)
    seen = [Attributes((("symbol", "s0"), ("price", price)), b"") for price in ("40", "200")]
    assert [cover.holds_for(each) for each in seen] == [True, False]
