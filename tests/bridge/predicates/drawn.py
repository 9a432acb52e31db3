"""Strategies: few names and values, so that predicates meet each other and the messages."""

from __future__ import annotations

from hypothesis import strategies as st

from bridge.predicates import Comparison, Name, Op, Predicate, Value

NAMES: list[Name] = [("a",), ("b",), ("payload", "c"), ("payload", "d", "e")]
numbers = st.sampled_from([-2.0, -0.0, 0.0, 1.0, 1.5, 2.0, 3.0, 7.0])
values: st.SearchStrategy[Value] = st.one_of(numbers, st.sampled_from(["", "on", "off", "x"]))
attributes = st.dictionaries(st.sampled_from(NAMES), values)


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    op = draw(st.sampled_from(list(Op)))
    return Comparison(draw(st.sampled_from(NAMES)), op, draw(numbers if op.is_range else values))


predicates = st.lists(st.lists(comparisons(), max_size=4).map(tuple), min_size=1, max_size=3).map(
    lambda found: Predicate(tuple(found))
)
