"""Shown lists: the attributes of its content a publication shows to replicas, in property `vmq-attr`.

Its publisher makes the list of the scope's declared attributes (`document.ShownAttribute`), and signs its SHA-256 in
the header. A list has a row for each distinct combination of values among the records; a replica passes the
publication on to readers whom one of them may fit, and the gateway there filters exactly. A publication with more
than `ROWS_MAX` rows, or a retained one, shows nothing and goes to everybody.

    opening(3: version, kind 36) names: count(1) and each: parts(1), texts    rows: count(1) and each, by name:
    kind(1: absent 0, number 1, text 2, token 3) and number(8, a finite double), text, or token(16)

Not here: predicates and their covers (`covers`), who is left out for them (`replica.filtering`). Paper item C10.
"""

from __future__ import annotations

import hmac
import math
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bridge.document import ScopeSecret, ShownAttribute
from bridge.predicates import Attributes, Name, Value
from keys.errors import BadFrame
from keys.frames import Kind, Reader, number, opening, text
from keys.message import content_digest

PROPERTY_SHOWN = "vmq-attr"
ROWS_MAX = 64
LIST_BYTES = 8 << 10
"""Bytes of the frame: bounds the attributes' share of a header, and the reading of replicas."""
SHOWN_TEXT_BYTES = 256
"""A longer value makes its publication show nothing."""
TEXT_BUCKET = -1.0
"""The bucket of texts among buckets of numbers."""
TOKEN_BYTES = 16
_ABSENT, _NUMBER, _TEXT, _TOKEN = range(4)
_DOUBLE = struct.Struct(">d")
_DOMAIN = b"veilmq/1 attribute\0"


class ShownList(NamedTuple):
    """The attributes a publication shows. A name outside `names` may have any value; a name missing in a row is
    absent.
    """

    names: frozenset[Name]
    rows: tuple[Mapping[Name, Value], ...]


def shown_list(secret: ScopeSecret, records: Iterable[Attributes]) -> bytes | None:
    """Returns the frame for a publication of these records; None: it shows nothing."""
    declared = secret.scope.shown
    rows: dict[bytes, None] = {}
    for record in records:
        parts = []
        for each in declared:
            part = _value(each, shown_value(each, record.get(each.name), secret.token_key))
            if part is None:
                return None
            parts.append(part)
        rows[b"".join(parts)] = None
        if len(rows) > ROWS_MAX:
            return None
    names = [number(len(name), 1) + b"".join(map(text, name)) for name in (each.shown_name for each in declared)]
    head = opening(Kind.SHOWN) + number(len(declared), 1) + b"".join(names)
    frame = b"".join([head, number(len(rows), 1), *rows])
    return frame if rows and len(frame) <= LIST_BYTES else None


def shown_value(declared: ShownAttribute, value: Value | None, token_key: bytes | None) -> Value | None:
    """Returns a value as replicas see it: its bucket if there are borders, in hexadecimal digits if it is a token."""
    if value is None:
        return None
    if declared.borders:
        value = float(bisect_right(declared.borders, value)) if isinstance(value, float) else TEXT_BUCKET
    return token(declared.name, value, token_key) if declared.is_token else value


def token(name: Name, value: Value, token_key: bytes | None) -> str:
    """Returns an HMAC-SHA256 under the scope's token key: equal values look equal, but differ from other scopes'
    values.
    """
    said = b"n" + _DOUBLE.pack(value + 0.0) if isinstance(value, float) else b"t" + value.encode("utf-8", "replace")
    message = _DOMAIN + number(len(name), 1) + b"".join(map(text, name)) + said
    return hmac.digest(token_key or bytes(32), message, "sha256")[:TOKEN_BYTES].hex()


def _value(declared: ShownAttribute, value: Value | None) -> bytes | None:
    if value is None:
        return bytes((_ABSENT,))
    if declared.is_token:
        assert isinstance(value, str)
        return bytes((_TOKEN,)) + bytes.fromhex(value)
    if isinstance(value, float):
        return bytes((_NUMBER,)) + _DOUBLE.pack(value)
    try:
        said = value.encode()
    except UnicodeEncodeError:
        return None
    return bytes((_TEXT,)) + text(value) if len(said) <= SHOWN_TEXT_BYTES else None


def read_list(frame: bytes, digest: bytes) -> ShownList:
    """Reads a frame. Raises BadFrame for another digest than the signed one, and for a bad form."""
    if len(frame) > LIST_BYTES or content_digest(frame) != digest:
        raise BadFrame("a list of attributes that was not signed")
    reader = Reader(frame)
    reader.opening(Kind.SHOWN)
    names = [tuple(reader.text() for _ in range(reader.number(1))) for _ in range(reader.number(1))]
    count = reader.number(1)
    if len(set(names)) != len(names) or not 1 <= count <= ROWS_MAX:
        raise BadFrame("a list of attributes names one twice, or has no rows, or too many")
    rows = tuple(
        {name: value for name in names if (value := read_value(reader, may_lack=True)) is not None}
        for _ in range(count)
    )
    reader.expect_end()
    return ShownList(frozenset(names), rows)


def value_bytes(value: Value) -> bytes:
    """Encodes a constant of a predicate, in the form of values in lists."""
    if isinstance(value, float):
        return bytes((_NUMBER,)) + _DOUBLE.pack(value)
    return bytes((_TEXT,)) + text(value)


def read_value(reader: Reader, *, may_lack: bool = False) -> Value | None:
    """Reads a value; None: absent. Raises BadFrame."""
    match reader.number(1):
        case 0 if may_lack:
            return None
        case 1:
            value: float = _DOUBLE.unpack(reader.take_bytes(8))[0]
            if math.isfinite(value):
                return value
        case 2:
            return reader.text()
        case 3 if may_lack:
            return reader.take_bytes(TOKEN_BYTES).hex()
    raise BadFrame("a value that is no attribute's")
