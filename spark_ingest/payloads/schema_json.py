"""JSON Schema: payloads are JSON, or CBOR or MessagePack by `form`.

Operators write schemas, anybody writes payloads. So no payload makes checking long or deep: values and nesting are
bounded before the check, `uniqueItems` sorts items in place of comparing all pairs, and references lead into the same
file only. A `pattern` is a regular expression of Python, as quick as its author wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from spark_ingest.payloads.cbor import plain_cbor
from spark_ingest.payloads.messagepack import NOT_UTF8, PayloadError, messagepack_to_json
from spark_ingest.payloads.plain import PlainValues
from spark_ingest.payloads.schema import TEXT, BadSchema, Schema, quoted

FORMS = ("json", "cbor", "messagepack")
"""Forms of payloads with a JSON Schema."""
_SIMPLE = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_PLACE_CHARACTERS = 200
"""Characters of the place in a schema, in a reason."""


def json_schema(text: str, form: str) -> Schema:
    """Returns the schema of a text in JSON Schema. Raises BadSchema."""
    import jsonschema  # noqa: PLC0415  each format has a library of its own

    try:
        told = json.loads(text)
        kind = jsonschema.validators.validator_for(told, jsonschema.Draft202012Validator)
        kind.check_schema(told)
        references = list(_references(told))
    except (ValueError, RecursionError, jsonschema.SchemaError) as error:
        raise BadSchema(f"no JSON Schema: {(str(error) or 'nested too deep').splitlines()[0]}") from None
    if not isinstance(told, dict) or not isinstance(told.get("properties"), dict):
        raise BadSchema("the schema of an object with properties is needed")
    if not all(reference.startswith("#") for reference in references):
        raise BadSchema("a $ref to another file; write it into this one")
    check = jsonschema.validators.extend(kind, {"uniqueItems": _unique_items})(told)

    def decode(payload: bytes) -> dict[str, Any]:
        value = _decoded(payload, form)
        plain = PlainValues().plain(value)
        _fit(check, value)
        if not isinstance(plain, dict):
            raise PayloadError("no object")
        return plain

    return Schema({name: _type(each) for name, each in told["properties"].items()}, decode)


def _references(told: Any) -> Iterator[str]:
    for each in told.values() if isinstance(told, dict) else told if isinstance(told, list) else ():
        yield from _references(each)
    if isinstance(told, dict):
        yield from (told[name] for name in _REFERENCES if isinstance(told.get(name), str))


def _type(told: Any) -> str:
    """Returns Spark's type of a field; text, of JSON, without a better type."""
    kinds = told.get("type") if isinstance(told, dict) else None
    kind = next((each for each in kinds if each != "null"), None) if isinstance(kinds, list) else kinds
    if isinstance(kinds, list) and len([each for each in kinds if each != "null"]) != 1:
        return TEXT
    if kind == "string" and told.get("format") == "date-time":
        return "timestamp"
    if kind == "array":
        return f"array<{_type(told.get('items'))}>"
    if kind == "object" and told.get("properties"):
        parts = (f"{quoted(name)}: {_type(each)}" for name, each in told["properties"].items())
        return f"struct<{', '.join(parts)}>"
    return _SIMPLE.get(str(kind), TEXT)


def _fit(check: Any, value: Any) -> None:
    """Raises PayloadError if a schema refuses a value, or if a rule of the schema fails on the value."""
    try:
        first = next(check.iter_errors(value), None)
    except Exception as error:  # noqa: BLE001  a rule met a number beyond floats; a $ref that leads nowhere
        raise PayloadError(f"cannot be checked ({type(error).__name__})") from None
    if first is not None:
        where = "/".join(str(part) for part in first.schema_path)
        raise PayloadError(f"does not fit {where[:_PLACE_CHARACTERS]}")


def _unique_items(check: Any, wanted: Any, items: Any, _: Any) -> Iterator[Any]:
    """Yields an error if two items are equal by JSON Schema's rule `uniqueItems`: 1 equals 1.0, and not true.

    Texts are sorted: to compare all pairs takes hours, and senders can choose numbers with equal hashes.
    """
    from jsonschema import ValidationError  # noqa: PLC0415

    if wanted and check.is_type(items, "array"):
        texts = sorted(json.dumps(_same(each), sort_keys=True) for each in items)
        if any(one == other for one, other in pairwise(texts)):
            yield ValidationError("items are not unique")


def _same(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _same(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_same(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _decoded(payload: bytes, form: str) -> Any:
    if form == "cbor":
        return plain_cbor(payload)
    try:
        text = messagepack_to_json(payload) if form == "messagepack" else payload.decode()
        return json.loads(text, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise PayloadError(NOT_UTF8) from None
    except PayloadError:
        raise
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"malformed ({type(error).__name__})") from None
