"""A schema as read: columns of Spark, and a function that checks payloads. Each format makes one (`schema_*`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

TEXT = "string"
"""Spark's type of a field without a better type: the value as JSON."""

Decode: TypeAlias = Callable[[bytes], dict[str, Any]]


class BadSchema(ValueError):  # noqa: N818  as in errors.py
    """An error of a schema file: a line with file and cause."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as read. `columns`: Spark's type of each field, in order. `decode` raises PayloadError, and returns
    values as `plain` makes them.
    """

    columns: Mapping[str, str]
    decode: Decode


def quoted(name: str) -> str:
    """Returns a name as Spark's SQL quotes it."""
    return f"`{name.replace('`', '``')}`"
