"""A predicate over the attributes of a message: its parts, and whether it holds. One meaning for broker and index.

An attribute is text or a finite number; text that spells a number *is* that number, so that `=` means equal text or
equal numbers and nothing else. What is absent makes every comparison with it false, `!=` too. Paper item C10.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

Name: TypeAlias = tuple[str, ...]
"""`("room",)` is the user property `room`; `("payload", "a", "b")` is field `b` of field `a` of a JSON payload."""
Value: TypeAlias = float | str

NUMBER_CHARS = 64
"""Longer digits are text: nobody makes us convert a megabyte of them."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class PredicateError(ValueError):
    """An expression that is none, or one beyond its bounds; the message says which."""


class Op(Enum):
    """How an attribute is compared."""

    EQ = "="
    NE = "!="
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="

    @property
    def is_range(self) -> bool:
        """Whether only numbers fulfil it."""
        return self not in (Op.EQ, Op.NE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One attribute against one constant, which is a number where `op.is_range`."""

    name: Name
    op: Op
    value: Value

    def holds_for(self, value: Value | None) -> bool:
        """Whether it holds where the attribute is `value`; None: absent."""
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
    """Where the value of an attribute is looked up: a mapping, or `attributes.Attributes`."""

    def get(self, name: Name, /) -> Value | None:
        """None: absent."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """Holds where all comparisons of one of its conjunctions hold. An empty conjunction always does."""

    conjunctions: tuple[Conjunction, ...]

    def holds(self, attributes: Readable) -> bool:
        """Whether a message with these attributes is wanted."""
        return any(
            all(one.holds_for(attributes.get(one.name)) for one in conjunction) for conjunction in self.conjunctions
        )


def value_of(text: str) -> Value:
    """The number that the text spells in decimal, else the text. No infinity, no underscores, no hexadecimal."""
    if text and len(text) <= NUMBER_CHARS and _NUMBER.fullmatch(text):
        number = float(text)
        if math.isfinite(number):
            return number
    return text
