"""The attributes of a message, read on demand: user properties, and fields of a JSON payload.

The last of repeated user properties counts, and so does the last of repeated JSON fields. A payload that is longer
than `JSON_BYTES`, or no JSON, has no fields; objects, arrays and null are no values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from bridge.predicates.comparing import Name, Value, value_of

JSON_BYTES = 64 << 10
"""Stops a publisher from having megabytes parsed for one predicate."""


class Attributes:
    """The attributes of a message that predicates see."""

    __slots__ = ("_document", "_is_parsed", "_known", "_payload", "_user")

    def __init__(self, user: Iterable[tuple[str, str]], payload: bytes) -> None:
        self._user, self._payload = user, payload
        self._known: dict[Name, Value | None] = {}
        self._document: object = None
        self._is_parsed = False
        for name, text in user:
            self._known[name,] = value_of(text)
        self._known.pop(("payload",), None)

    def get(self, name: Name) -> Value | None:
        """Returns the value of an attribute; None if absent."""
        if name[0] != "payload":
            return self._known.get(name)
        if name not in self._known:
            self._known[name] = self._field(name[1:])
        return self._known[name]

    def _field(self, path: tuple[str, ...]) -> Value | None:
        if not self._is_parsed:
            self._document, self._is_parsed = _parsed(self._payload), True
        found = self._document
        for step in path:
            if not isinstance(found, dict):
                return None
            found = found.get(step)
        if isinstance(found, bool):
            return "true" if found else "false"
        if isinstance(found, str):
            return value_of(found)
        return found if isinstance(found, float) and math.isfinite(found) else None


def _parsed(payload: bytes) -> object:
    if len(payload) > JSON_BYTES:
        return None
    try:
        # Integers of any length become floats, as all numbers here.
        return json.loads(payload.decode(), parse_int=float, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None
