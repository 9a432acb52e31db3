"""A CBOR payload (RFC 8949) as JSON text, and as plain values for `senml`.

Sizes, numbers of values and nesting are bounded, and each fault is a short reason without a word of the payload. What
JSON lacks becomes text: binary as base64, times (tags 0 and 1) as ISO 8601, NaN and the infinities as "NaN",
"Infinity" and "-Infinity", undefined as null, integers beyond 64 bits as text. Other tags and simple values are a
reason. Map keys become text; of equal ones the last counts. Not here: Spark (`functions`), types of a
schema (Spark's from_json).
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from io import BytesIO
from typing import Any

from spark_ingest.payloads.messagepack import NESTING_MAX, PAYLOAD_BYTES_MAX, VALUES_MAX, PayloadError

ODD_KEYS_BYTES_MAX = 16 << 10
"""The size of a payload with map keys that are neither text nor binary."""
_LONG = range(-(1 << 63), 1 << 63)


def _refuse(*_: Any) -> Any:
    raise ValueError


_REFUSED: dict[int, Any] = dict.fromkeys(
    (2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000), _refuse
)
"""Tags whose values grow beyond the payload, cost more than their size, or have no JSON."""


def cbor_to_json(payload: bytes) -> str:
    """Returns JSON text of a CBOR value. Raises PayloadError."""
    return json.dumps(plain_cbor(payload), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain_cbor(payload: bytes) -> Any:
    """Returns a CBOR value as values that JSON has. Raises PayloadError."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise PayloadError(f"larger than {PAYLOAD_BYTES_MAX} bytes")
    try:
        value = _decoded(payload, strict=True)
    except PayloadError:
        # Keys of other kinds than text may be chosen to fall together in a hash table: few are let in.
        if len(payload) > ODD_KEYS_BYTES_MAX:
            raise
        value = _decoded(payload, strict=False)
    return _Converter().convert(value, 0)


def _decoded(payload: bytes, *, strict: bool) -> Any:
    import cbor2  # noqa: PLC0415  for who decodes it

    source = BytesIO(payload)
    decoder = cbor2.CBORDecoder(
        source, tag_hook=_refuse, semantic_decoders=_REFUSED, max_depth=NESTING_MAX, strict_hashable_types=strict
    )
    try:
        value = decoder.decode()
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        # The text of these errors may quote the payload: only the kind is told.
        raise PayloadError(f"malformed ({type(error).__name__})") from None
    if source.tell() != len(payload):
        raise PayloadError("more than one value, or bytes behind it")
    return value


class _Converter:
    """Counts values on their way to JSON."""

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def convert(self, value: Any, depth: int) -> Any:
        """Returns a value as JSON can hold it."""
        self._left -= 1
        if self._left < 0:
            raise PayloadError(f"more than {VALUES_MAX} values")
        if depth > NESTING_MAX:
            raise PayloadError(f"nested deeper than {NESTING_MAX}")
        if isinstance(value, dict):
            return {_key(key): self.convert(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.convert(each, depth + 1) for each in value]
        return _scalar(value)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if value in _LONG else str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if type(value).__name__ == "UndefinedType":
        return None
    raise PayloadError("a tag or simple value that has no JSON")


def _key(key: Any) -> str:
    told = _scalar(key)
    return told if isinstance(told, str) else json.dumps(told)
