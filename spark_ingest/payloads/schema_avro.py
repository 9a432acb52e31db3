"""Avro records: a payload is a datum, or better a datum in single-object encoding, which names its schema.

A datum of a few bytes can claim 2^60 items of no bytes each, or nest as deep as the payload is long; the library would
make all items, or end its process. So a walk with the allowance of `PlainValues` comes before the library.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.plain import PlainValues
from spark_ingest.payloads.schema import TEXT, BadSchema, Schema, quoted

MAGIC = b"\xc3\x01"
DECIMAL_BYTES_MAX = 128
"""Bytes of a decimal: Python takes the square of the size to write a decimal down."""
_MORE = 0x80
"""The bit of a byte that says: another byte of the number follows."""
_LONG_MAX = (1 << 64) - 1
_TYPES = {
    "string": "string", "bytes": "binary", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "boolean": "boolean", "enum": "string", "fixed": "binary",
}  # fmt: skip
_LOGICAL = {
    "timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "date": "date", "uuid": "string",
    "decimal": "string", "time-millis": "string", "time-micros": "string",
}  # fmt: skip
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NAMED = ("record", "error", "enum", "fixed")


def avro_schema(text: str) -> Schema:
    """Returns the schema of an Avro record. Raises BadSchema."""
    import fastavro  # noqa: PLC0415  each format has a library of its own

    try:
        parsed: Any = fastavro.parse_schema(json.loads(text))
        mark = int(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(parsed), "CRC-64-AVRO"), 16)
    except Exception as error:  # noqa: BLE001  errors of the library, and of Python
        raise BadSchema(f"no Avro schema: {type(error).__name__}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise BadSchema("an Avro record is needed")
    head, named, own = MAGIC + mark.to_bytes(8, "big"), _named(parsed), (parsed["name"],)

    def decode(payload: bytes) -> dict[str, Any]:
        at = 0
        if payload[: len(MAGIC)] == MAGIC:
            if payload[: len(head)] != head:
                raise PayloadError("written with another Avro schema")
            at = len(head)
        walk = _Walk(payload, at, named)
        walk.skip(parsed, 0)
        if walk.at != len(payload):
            raise PayloadError("bytes behind the record")
        try:
            value: Any = fastavro.schemaless_reader(BytesIO(payload[at:]), parsed, None)
        except Exception as error:  # noqa: BLE001  errors of the library, and of Python
            raise PayloadError(f"malformed ({type(error).__name__})") from None
        values = PlainValues()
        return {str(name): values.plain(each) for name, each in value.items()}

    return Schema({each["name"]: _type(each["type"], named, own) for each in parsed["fields"]}, decode)


def _named(told: Any) -> dict[str, Any]:
    """Returns the named types of a schema."""
    found: dict[str, Any] = {}
    for each in told if isinstance(told, list) else ():
        found |= _named(each)
    if isinstance(told, dict):
        if told["type"] in _NAMED:
            found[told["name"]] = told
        for part in (told["type"], told.get("items"), told.get("values")):
            found |= _named(part)
        for field in told.get("fields", ()):
            found |= _named(field["type"])
    return found


def _type(told: Any, named: dict[str, Any], within: tuple[str, ...]) -> str:
    """Returns Spark's type; text, of JSON, without a better type. `within`: the names of records around the type."""
    if isinstance(told, list):
        kinds = [each for each in told if each != "null"]
        return _type(kinds[0], named, within) if len(kinds) == 1 else TEXT
    if isinstance(told, str):
        return _type(named[told], named, within) if told in named else _TYPES.get(told, TEXT)
    if not isinstance(told, dict) or told.get("name") in within:
        return TEXT
    kind = told["type"]
    if told.get("logicalType") in _LOGICAL:
        return _LOGICAL[told["logicalType"]]
    if kind == "record":
        inner = (*within, told["name"])
        parts = (f"{quoted(each['name'])}: {_type(each['type'], named, inner)}" for each in told["fields"])
        return f"struct<{', '.join(parts)}>" if told["fields"] else TEXT
    if kind == "array":
        return f"array<{_type(told['items'], named, within)}>"
    if kind == "map":
        return f"map<string, {_type(told['values'], named, within)}>"
    return _type(kind, {}, within)


class _Walk:
    """A walk over a datum that makes no values. Raises PayloadError for a datum that is cut, too large or too deep."""

    def __init__(self, payload: bytes, at: int, named: dict[str, Any]) -> None:
        self.at = at
        self._payload = payload
        self._named = named
        self._values = PlainValues()

    def skip(self, told: Any, depth: int) -> None:
        """Goes to the end of a value of a type."""
        self._values.count_values(1, depth)
        if isinstance(told, list):
            branch = self._long()
            if not 0 <= branch < len(told):
                raise PayloadError("malformed (no such branch of a union)")
            return self.skip(told[branch], depth + 1)
        told = self._named.get(told, {"type": told}) if isinstance(told, str) else told
        kind = told["type"]
        if not isinstance(kind, str):
            return self.skip(kind, depth + 1)
        if kind in ("record", "error"):
            for field in told["fields"]:
                self.skip(field["type"], depth + 1)
        elif kind in ("array", "map"):
            self._blocks(told, depth + 1)
        elif kind in ("string", "bytes"):
            self._bytes(self._long(), is_decimal=told.get("logicalType") == "decimal")
        elif kind in ("int", "long", "enum"):
            self._long()
        else:
            self._bytes(told["size"] if kind == "fixed" else _SIZES[kind])
        return None

    def _blocks(self, told: Any, depth: int) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            for _ in range(count):
                if told["type"] == "map":
                    self._bytes(self._long())
                self.skip(told["items" if told["type"] == "array" else "values"], depth)

    def _bytes(self, size: int, *, is_decimal: bool = False) -> None:
        if not 0 <= size <= len(self._payload) - self.at:
            raise PayloadError("malformed (cut short)")
        if is_decimal and size > DECIMAL_BYTES_MAX:
            raise PayloadError(f"a decimal larger than {DECIMAL_BYTES_MAX} bytes")
        self.at += size

    def _long(self) -> int:
        found = shift = 0
        while shift < _LONG_MAX.bit_length():
            if self.at >= len(self._payload):
                raise PayloadError("malformed (cut short)")
            byte = self._payload[self.at]
            self.at += 1
            found |= (byte & ~_MORE) << shift
            if byte < _MORE:
                if found > _LONG_MAX:
                    break
                return (found >> 1) ^ -(found & 1)
            shift += 7
        raise PayloadError("malformed (a number of more than 64 bits)")
