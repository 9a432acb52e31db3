"""What a comparison means, value by value."""

from __future__ import annotations

import pytest

from bridge.predicates import Comparison, Op, Predicate, value_of


@pytest.mark.parametrize(("text", "value"), [
    ("25", 25.0), ("-0.5", -0.5), ("1e3", 1000.0), ("+7", 7.0), (".5", 0.5), ("5.", 5.0),
    ("", ""), ("nan", "nan"), ("inf", "inf"), ("1e999", "1e999"), ("0x10", "0x10"), ("1_000", "1_000"), (" 1", " 1"),
    ("٣", "٣"), ("1" * 65, "1" * 65), ("on", "on"),
])  # fmt: skip
def test_text_that_spells_a_finite_number_is_that_number(text: str, value: object) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(("op", "constant", "value", "holds"), [
    (Op.EQ, 1.0, 1.0, True), (Op.EQ, "on", "on", True), (Op.EQ, "on", "On", False), (Op.EQ, 1.0, "on", False),
    (Op.NE, 1.0, 2.0, True), (Op.NE, "on", 2.0, True), (Op.NE, 1.0, 1.0, False),
    (Op.GT, 1.0, 1.0, False), (Op.GE, 1.0, 1.0, True), (Op.LT, 1.0, 0.5, True), (Op.LE, 1.0, 1.5, False),
    (Op.GT, 1.0, "z", False), (Op.LT, 1.0, "", False),
])  # fmt: skip
def test_operators(op: Op, constant: float | str, value: float | str, holds: bool) -> None:
    assert Comparison(("a",), op, constant).holds_for(value) is holds


@pytest.mark.parametrize("op", list(Op))
def test_nothing_holds_for_what_is_absent(op: Op) -> None:
    assert not Comparison(("a",), op, 1.0).holds_for(None)


def test_a_predicate_holds_where_one_alternative_does() -> None:
    both = (Comparison(("a",), Op.EQ, 1.0), Comparison(("b",), Op.GT, 2.0))
    predicate = Predicate((both, (Comparison(("c",), Op.EQ, "x"),)))
    assert predicate.holds_for({("a",): 1.0, ("b",): 3.0})
    assert not predicate.holds_for({("a",): 1.0, ("b",): 2.0})
    assert predicate.holds_for({("c",): "x"})
