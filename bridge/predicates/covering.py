"""Covering of predicates: a predicate implied by another, and a short predicate implied by many.

`implies` may return False where True is right, never the reverse. `widen` gives the predicate for a neighbour, so
that no wanted message is left out: alternatives covered by others are dropped, then similar alternatives are joined.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bridge.predicates.comparing import Comparison, Conjunction, Name, Op, Predicate, Value

COVER_MAX = 64
"""The most alternatives of a predicate that `widen` returns."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The values of an attribute a conjunction allows. `equal`: only this value; else a number within bounds, if
    `is_number`.
    """

    equal: Value | None = None
    is_number: bool = False
    low: float = -math.inf
    is_low_open: bool = False
    high: float = math.inf
    is_high_open: bool = False
    unlike: frozenset[Value] = frozenset()
    is_empty: bool = False

    def within(self, one: Comparison) -> _Span:
        """Returns the values that this span and the comparison both allow."""
        value = one.value
        if one.op is Op.EQ:
            clash = self.is_empty or (self.equal is not None and self.equal != value) or not self.allows(value)
            return replace(self, equal=value, is_empty=clash)
        if one.op is Op.NE:
            return replace(self, unlike=self.unlike | {value}, is_empty=self.is_empty or self.equal == value)
        assert isinstance(value, float)
        span = replace(self, is_number=True)
        is_open = one.op in (Op.GT, Op.LT)
        if one.op in (Op.GT, Op.GE) and (value, is_open) > (self.low, self.is_low_open):
            span = replace(span, low=value, is_low_open=is_open)
        if one.op in (Op.LT, Op.LE) and (-value, is_open) > (-self.high, self.is_high_open):
            span = replace(span, high=value, is_high_open=is_open)
        crossed = span.low > span.high or (span.low == span.high and (span.is_low_open or span.is_high_open))
        is_out = span.equal is not None and not span.allows(span.equal)
        return replace(span, is_empty=span.is_empty or crossed or is_out)

    def allows(self, value: Value) -> bool:
        """Returns True if the bounds and exclusions leave this value."""
        if value in self.unlike:
            return False
        if not self.is_number:
            return True
        if not isinstance(value, float):
            return False
        above = value > self.low or (value == self.low and not self.is_low_open)
        return above and (value < self.high or (value == self.high and not self.is_high_open))

    def implies(self, one: Comparison) -> bool:
        """Returns True if every allowed value fulfils the comparison."""
        if self.equal is not None:
            return one.holds_for(self.equal)
        if one.op is Op.EQ:
            return self.is_number and self.low == self.high == one.value
        if one.op is Op.NE:
            return not self.allows(one.value)
        if not self.is_number:
            return False
        assert isinstance(one.value, float)
        if one.op in (Op.GT, Op.GE):
            return self.low > one.value or (self.low == one.value and (one.op is Op.GE or self.is_low_open))
        return self.high < one.value or (self.high == one.value and (one.op is Op.LE or self.is_high_open))

    def joined(self, other: _Span) -> _Span | None:
        """Returns the smallest expressible span containing both spans; None if only the attribute's presence
        remains.
        """
        if self.equal is not None and self.equal == other.equal:
            return _Span(equal=self.equal)
        a, b = self._as_range(), other._as_range()
        if a is None or b is None:
            return None
        low = min((a.low, a.is_low_open), (b.low, b.is_low_open))
        high = max((a.high, not a.is_high_open), (b.high, not b.is_high_open))
        span = _Span(None, True, *low, high[0], not high[1])
        return None if (span.low, span.high) == (-math.inf, math.inf) else span

    def _as_range(self) -> _Span | None:
        if isinstance(self.equal, float):
            return _Span(None, True, self.equal, False, self.equal, False)
        return self if self.is_number else None

    def comparisons(self, name: Name) -> Iterable[Comparison]:
        if self.equal is not None:
            yield Comparison(name, Op.EQ, self.equal)
            return
        if self.low > -math.inf:
            yield Comparison(name, Op.GT if self.is_low_open else Op.GE, self.low)
        if self.high < math.inf:
            yield Comparison(name, Op.LT if self.is_high_open else Op.LE, self.high)
        for value in sorted(self.unlike, key=lambda each: (isinstance(each, str), each)):
            yield Comparison(name, Op.NE, value)


def _spans(conjunction: Conjunction) -> dict[Name, _Span]:
    spans: dict[Name, _Span] = {}
    for one in conjunction:
        spans[one.name] = spans.get(one.name, _Span()).within(one)
    return spans


def _covers(spans: dict[Name, _Span], wide: Conjunction) -> bool:
    if any(span.is_empty for span in spans.values()):
        return True
    return all(one.name in spans and spans[one.name].implies(one) for one in wide)


def implies(narrow: Predicate, wide: Predicate) -> bool:
    """Returns True if `wide` holds wherever `narrow` holds, as far as single alternatives show it."""
    return all(any(_covers(spans, each) for each in wide.conjunctions) for spans in map(_spans, narrow.conjunctions))


def widen(predicates: Iterable[Predicate], most: int = COVER_MAX) -> Predicate:
    """Returns a predicate of at most `most` alternatives holding wherever one of `predicates` holds. Without
    predicates it never holds.
    """
    alternatives = {each for predicate in predicates for each in predicate.conjunctions}
    kept = [spans for each in sorted(alternatives, key=repr) if not _is_never(spans := _spans(each))]
    kept.sort(key=lambda spans: (sorted(spans), [_place(spans[name]) for name in sorted(spans)]))
    while len(kept) > most:
        # Neighbours in this order mostly constrain the same attributes, and lie close to each other.
        joined = [_joined(*kept[at : at + 2]) for at in range(0, len(kept) - 1, 2)]
        kept = joined + kept[len(joined) * 2 :]
    result: list[Conjunction] = []
    for spans in kept:
        conjunction = tuple(one for name in sorted(spans) for one in spans[name].comparisons(name))
        if any(_covers(spans, other) for other in result):
            continue
        result = [other for other in result if not _covers(_spans(other), conjunction)]
        result.append(conjunction)
    return Predicate(tuple(result))


def _is_never(spans: dict[Name, _Span]) -> bool:
    return any(span.is_empty for span in spans.values())


def _place(span: _Span) -> tuple[bool, float, float, str]:
    if isinstance(span.equal, str):
        return True, 0.0, 0.0, span.equal
    low, high = (span.equal, span.equal) if span.equal is not None else (span.low, span.high)
    return False, low, high, ""


def _joined(left: dict[Name, _Span], right: dict[Name, _Span]) -> dict[Name, _Span]:
    both = {name: left[name].joined(right[name]) for name in left if name in right}
    return {name: span for name, span in both.items() if span is not None}
