"""Predicates over the attributes of a message: their parts and their evaluation. Broker and index share a single
meaning.

An attribute is text or a finite number; text that spells a number *is* that number, so that `=` means equal text or
equal numbers and nothing else. Every comparison with an absent attribute is false, `!=` too. Paper item C10.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

Name: TypeAlias = tuple[str, ...]
"""A path to an attribute: `("room",)` is the user property `room`; `("payload", "a", "b")` is field `b` of field `a` of
a JSON payload.
"""
Value: TypeAlias = float | str

NUMBER_CHARS = 64
"""The most characters of a number; longer digits are text. Stops a client from making us convert a megabyte of
digits.
"""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class PredicateError(ValueError):
    """An error: an invalid expression, or an expression beyond a bound; the message names the fault."""


class Op(Enum):
    """The operator of a comparison."""

    EQ = "="
    NE = "!="
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="

    @property
    def is_range(self) -> bool:
        """True if only numbers can fulfil the operator."""
        return self not in (Op.EQ, Op.NE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of an attribute with a constant, a number if `op.is_range`."""

    name: Name
    op: Op
    value: Value

    def holds_for(self, value: Value | None) -> bool:
        """Returns True if the comparison holds for an attribute of this value; None: absent."""
        if value is None:
            return False
        if self.op is Op.EQ:
            return value == self.value
        if self.op is Op.NE:
            return value != self.value
        return isinstance(value, float) and isinstance(self.value, float) and _ORDER[self.op](value, self.value)


_ORDER: Mapping[Op, Callable[[float, float], bool]] = {
    Op.GT: float.__gt__,
    Op.GE: float.__ge__,
    Op.LT: float.__lt__,
    Op.LE: float.__le__,
}

Conjunction: TypeAlias = tuple[Comparison, ...]


class Readable(Protocol):
    """A source of attributes' values: a mapping, or `attributes.Attributes`."""

    def get(self, name: Name, /) -> Value | None:
        """Returns the value of an attribute; None if absent."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate holds if all comparisons of one of its conjunctions hold. An empty conjunction always holds."""

    conjunctions: tuple[Conjunction, ...]

    def holds_for(self, attributes: Readable) -> bool:
        """Returns True if a message with these attributes is wanted."""
        return any(
            all(one.holds_for(attributes.get(one.name)) for one in conjunction) for conjunction in self.conjunctions
        )


def value_of(text: str) -> Value:
    """Returns the number the text spells in decimal, else the text. No infinity, no underscores, no hexadecimal."""
    if text and len(text) <= NUMBER_CHARS and _NUMBER.fullmatch(text):
        number = float(text)
        if math.isfinite(number):
            return number
    return text
