"""Decoded values as JSON values, counted: a small payload makes no large heap, and a deep payload ends no stack.

Binary becomes base64, times ISO 8601, decimals and UUIDs text, NaN and the infinities "NaN", "Infinity", "-Infinity".
Not here: the forms of CBOR and MessagePack (`cbor`, `messagepack`).
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from spark_ingest.payloads.messagepack import NESTING_MAX, NOT_UTF8, VALUES_MAX, PayloadError


class PlainValues:
    """The allowance of a payload: `VALUES_MAX` values, `NESTING_MAX` levels. Makes values plain within."""

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def count_values(self, values: int, depth: int) -> None:
        """Takes so many values off the allowance. Raises PayloadError."""
        self._left -= values
        if self._left < 0:
            raise PayloadError(f"more than {VALUES_MAX} values")
        if depth > NESTING_MAX:
            raise PayloadError(f"nested deeper than {NESTING_MAX}")

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Returns a value as JSON can hold it. Raises PayloadError."""
        self.count_values(1, depth)
        if isinstance(value, dict):
            return {str(key): self.plain(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(each, depth + 1) for each in value]
        return _scalar(value)


def json_text(value: Any) -> str:
    """Returns plain values as JSON text. Raises PayloadError for half of a surrogate pair, which UTF-8 cannot hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PayloadError(NOT_UTF8) from None
    return text


def _scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
