"""Both spellings, their bounds, and what random text does to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.predicates import Comparison, Op, Predicate, PredicateError, parse_expression, parse_where
from bridge.predicates.parsing import COMPARISONS_MAX, CONJUNCTIONS_MAX, DEPTH_MAX, TEXT_BYTES


def one(name: tuple[str, ...], op: Op, value: float | str) -> Predicate:
    return Predicate(((Comparison(name, op, value),),))


@pytest.mark.parametrize(("text", "expected"), [
    ("room=a", one(("room",), Op.EQ, "a")),
    ("room!=", one(("room",), Op.NE, "")),
    ("v>25", one(("v",), Op.GT, 25.0)),
    ("v>=2.5", one(("v",), Op.GE, 2.5)),
    ("v<=-1", one(("v",), Op.LE, -1.0)),
    ("payload.a.b=x=y", one(("payload", "a", "b"), Op.EQ, "x=y")),
    ("payload.a%2Eb=1", one(("payload", "a.b"), Op.EQ, 1.0)),
    ("payload<3", one(("payload",), Op.LT, 3.0)),
    ("a%3Db=c%26d", one(("a=b",), Op.EQ, "c&d")),
    ("a.b=1", one(("a.b",), Op.EQ, 1.0)),
])  # fmt: skip
def test_expressions(text: str, expected: Predicate) -> None:
    assert parse_expression(text) == expected


def test_terms_are_joined() -> None:
    assert len(parse_expression("a=1&b>2&a<3").conjunctions[0]) == 3


@pytest.mark.parametrize(("text", "expected"), [
    ("room = 'a'", "room=a"), ("v > 25 AND room <> 'it''s'", "v>25&room!=it's"), ("payload.t<=1e2", "payload.t<=100"),
    ("(a = 1) and (b = 2)", "a=1&b=2"), ("a = '25'", "a=25"), ("payload.a%2Eb = ''", "payload.a%2Eb="),
])  # fmt: skip
def test_where_says_the_same(text: str, expected: str) -> None:
    assert parse_where(text) == parse_expression(expected)


def test_and_binds_tighter_than_or_and_is_distributed_over_it() -> None:
    a, b, c = (parse_expression(text).conjunctions[0] for text in ("a=1", "b=2", "c=3"))
    assert parse_where("a=1 OR b=2 AND c=3").conjunctions == (a, b + c)
    assert parse_where("(a=1 OR b=2) AND c=3").conjunctions == (a + c, b + c)
    assert parse_where("a IN (1, 'x')").conjunctions == (a, parse_expression("a=x").conjunctions[0])


@pytest.mark.parametrize("text", [
    "", "=", "a", "=1", "a=1&", "&a=1", "a>x", "a>", "a>1e999", "a=%", "a=%zz", "a=%ff", "payload.=1", "payload..a=1",
    "&".join(["a=1"] * (COMPARISONS_MAX + 1)), "a=" + "x" * TEXT_BYTES, "a=" + "ä" * 600,
])  # fmt: skip
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(PredicateError):
        parse_expression(text)


@pytest.mark.parametrize("text", [
    "", "a", "a =", "= 1", "a = b", "a = 1 AND", "AND a = 1", "a = 1 b = 2", "(a = 1", "a = 1)", "a IN ()", "a IN (1",
    "a IN 1", "a > 'x'", "a = 'x", "NOT a = 1", "1 = a", "a == 1", "a = 1_0", "a; DROP", "a > '1' OR", "a = 1x",
    " OR ".join(["a=1"] * (CONJUNCTIONS_MAX + 1)), " AND ".join(["a=1"] * (COMPARISONS_MAX + 1)),
    "(a=1 OR a=2) AND (b=1 OR b=2) AND (c=1 OR c=2) AND (d=1 OR d=2)",
    "(" * (DEPTH_MAX + 1) + "a=1" + ")" * (DEPTH_MAX + 1), "a = '" + "x" * TEXT_BYTES + "'",
])  # fmt: skip
def test_what_is_no_where(text: str) -> None:
    with pytest.raises(PredicateError):
        parse_where(text)


def test_the_deepest_that_is_allowed() -> None:
    assert parse_where("(" * DEPTH_MAX + "a=1" + ")" * DEPTH_MAX) == parse_expression("a=1")


_soup = st.lists(st.sampled_from(
    ["a", "payload.x", " ", "=", "!=", "<>", ">", "<=", "1", "-2.5e3", "'x'", "'", "''", "(", ")", ",", "AND", " OR ",
     " IN ", "%41", "%", "&", ".", "ä", "\0", "\ud800", "_", "$where"]), max_size=60).map("".join)  # fmt: skip


@given(st.one_of(_soup, st.text(max_size=200), st.text("( ", max_size=1_100)))
def test_any_text_is_a_bounded_predicate_or_an_error(text: str) -> None:
    for parse in (parse_expression, parse_where):
        try:
            found = parse(text)
        except PredicateError:
            continue
        assert 1 <= len(found.conjunctions) <= CONJUNCTIONS_MAX
        assert all(1 <= len(each) <= COMPARISONS_MAX for each in found.conjunctions)
        assert found.holds_for({}) is False
