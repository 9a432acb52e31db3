"""A MessagePack payload as JSON text: a form for every schema, and for none.

Devices write what they like, and some write what harms: sizes, numbers of values and nesting are bounded, map keys
never meet a hash a sender can steer, and whatever is wrong is a single short reason without a word of the payload.
What JSON lacks becomes text: binary as base64, timestamps (extension -1) as ISO 8601, NaN and the infinities as "NaN",
"Infinity" and "-Infinity"; other extensions become {"ext": type, "data": base64}. Map keys become text; of equal ones
the last counts.

Not here: Spark (`functions`), types of a schema (Spark's from_json).
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack

PAYLOAD_BYTES_MAX = 1 << 20
"""A larger payload is not decoded: what it unpacks to may be many times its size."""
VALUES_MAX = 65_536
"""Values in a payload, map keys included; each costs an object."""
NESTING_MAX = 64
NOT_UTF8 = "text that is not UTF-8"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES_S = range(-62_135_596_800, 253_402_300_800)
"""Years 1 to 9999: what a timestamp can show."""


class PayloadError(ValueError):
    """Why a payload cannot be decoded: a few words, nothing of the payload."""


class _Map(list[tuple[Any, Any]]):
    """Pairs of a map as they came."""


def messagepack_to_json(payload: bytes) -> str:
    """JSON text of a MessagePack value. Raises PayloadError."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise PayloadError(f"larger than {PAYLOAD_BYTES_MAX} bytes")
    try:
        value = msgpack.unpackb(payload, strict_map_key=False, object_pairs_hook=_Map, timestamp=0)
    except UnicodeDecodeError:
        raise PayloadError(NOT_UTF8) from None
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        # The text of these errors may quote the payload: only their kind is told.
        raise PayloadError(f"malformed ({type(error).__name__})") from None
    return json.dumps(_Converter().convert(value, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class _Converter:
    """Counts while it converts."""

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def convert(self, value: Any, depth: int) -> Any:
        """Returns a value as JSON can hold it."""
        self._left -= 1
        if self._left < 0:
            raise PayloadError(f"more than {VALUES_MAX} values")
        if depth > NESTING_MAX:
            raise PayloadError(f"nested deeper than {NESTING_MAX}")
        if isinstance(value, _Map):
            return {self._key(key): self.convert(each, depth + 1) for key, each in value}
        if isinstance(value, list):
            return [self.convert(each, depth + 1) for each in value]
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, msgpack.Timestamp):
            return _iso(value)
        if isinstance(value, msgpack.ExtType):
            return {"ext": value.code, "data": base64.b64encode(value.data).decode()}
        return value

    def _key(self, key: Any) -> str:
        self._left -= 1
        if isinstance(key, str):
            return key
        if isinstance(key, list | msgpack.ExtType):
            raise PayloadError("a map key that is no text, number or binary")
        told = self.convert(key, 0)
        return told if isinstance(told, str) else json.dumps(told)


def _iso(time: Any) -> str:
    if time.seconds not in _TIMES_S:
        raise PayloadError("a time that no calendar has")
    # Microseconds, as Spark's timestamps: what is finer is cut off.
    return (_EPOCH + timedelta(seconds=time.seconds, microseconds=time.nanoseconds // 1000)).isoformat()
