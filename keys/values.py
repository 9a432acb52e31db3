"""Values: classes of a few fields that never change after construction.

mypy refuses a change, the interpreter does not: a frozen dataclass sets each field with `object.__setattr__`, so
that a `Publication` of twelve fields costs three times the time of a slotted one, and each message makes
some ten values on its way. Equality, hash, `repr` and `dataclasses.replace` are those of a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Returns the class as a value; its fields are its annotations, as in a dataclass."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
