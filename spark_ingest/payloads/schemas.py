"""Schema files of payloads, JSON Schema, Avro and Protocol Buffers: columns of Spark, and checked payloads.

    climate.json    JSON Schema; payloads are JSON, or CBOR or MessagePack by `form`
    climate.avsc    an Avro record; payloads are one datum, or better single-object encoding, which names its schema
    climate.proto   Protocol Buffers; the file's first message, or FILE.proto#Message

A query's columns are those of the file when it began. The file is read again when it changes: a payload is checked
against the newest text, an Avro payload else against the texts before; fields that the query has no column for go into
one text, `more`. So an optional field may be added while queries run. A broken or absent file changes nothing. Not
here: Spark (`typed`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from spark_ingest.payloads.cbor import plain_cbor
from spark_ingest.payloads.messagepack import NOT_UTF8, PAYLOAD_BYTES_MAX, PayloadError, messagepack_to_json

FORMS = ("json", "cbor", "messagepack")
"""Forms of payloads with a JSON Schema."""
SUFFIXES = (".json", ".avsc", ".proto")
FIELDS_MAX = 1_000
"""Columns that a schema may make."""
BEFORE_MAX = 4
"""Texts of a changed Avro file whose payloads are still read."""
AVRO_MAGIC = b"\xc3\x01"
TEXT = "string"
_SIMPLE = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_AVRO = {
    "string": "string", "bytes": "binary", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "boolean": "boolean", "enum": "string", "fixed": "binary",
}  # fmt: skip
_AVRO_LOGICAL = {
    "timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "date": "date", "uuid": "string",
    "decimal": "string", "time-millis": "string", "time-micros": "string",
}  # fmt: skip

Decode: TypeAlias = Callable[[bytes], dict[str, Any]]


class BadSchema(ValueError):  # noqa: N818  as in errors.py
    """A schema file that cannot be used: a line with file and cause."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as read. `columns`: Spark's type of each field, in order. `decode` raises PayloadError."""

    columns: Mapping[str, str]
    decode: Decode


@dataclass
class SchemaFile:
    """A schema file that may change. Travels to executors, which find it at the same path or keep what it had."""

    path: str
    form: str = "json"
    text: str = ""
    columns: tuple[str, ...] = ()
    """The columns of the query, in order."""
    _read: Schema | None = field(default=None, repr=False)
    _before: tuple[Schema, ...] = field(default=(), repr=False)
    """Avro's schemas before, newest first: publishers change later than the file."""
    _stamp: tuple[int, int] | None = field(default=None, repr=False)

    @classmethod
    def open(cls, path: str, form: str = "json") -> SchemaFile:
        """Reads a file. Raises BadSchema."""
        file, _, _ = path.partition("#")
        if Path(file).suffix not in SUFFIXES or form not in FORMS:
            raise BadSchema(f"{path}: a schema is one of *{', *'.join(SUFFIXES)}, and form one of {', '.join(FORMS)}")
        try:
            text = Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadSchema(f"{path}: {error}") from None
        schema = read_schema(path, text, form)
        return cls(path, form, text, tuple(schema.columns), schema)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the settings: what was read is read again where it is needed."""
        return self.__dict__ | {"_read": None, "_before": (), "_stamp": None}

    @property
    def ddl(self) -> str:
        """Spark's words for the columns."""
        known = self._newest().columns
        return ", ".join(f"`{name.replace('`', '``')}` {known[name]}" for name in self.columns)

    def renew(self) -> None:
        """Reads the file again if it has changed; a broken one changes nothing."""
        file = Path(self.path.partition("#")[0])
        try:
            told = file.stat()
            stamp = (told.st_mtime_ns, told.st_size)
            if stamp != self._stamp:
                self._stamp = stamp
                before = self._newest()
                self._read = read_schema(self.path, file.read_text("utf-8"), self.form)
                if file.suffix == ".avsc":
                    self._before = (before, *self._before)[:BEFORE_MAX]
        except (OSError, UnicodeDecodeError, BadSchema):
            return

    def decode(self, payload: bytes) -> tuple[str, str | None]:
        """Returns the query's columns as JSON, and other fields as JSON or None. Raises PayloadError."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise PayloadError(f"larger than {PAYLOAD_BYTES_MAX} bytes")
        fields = self._fields(payload)
        own = {name: fields[name] for name in self.columns if fields.get(name) is not None}
        more = {name: value for name, value in fields.items() if name not in self.columns}
        return _text(own), _text(more) if more else None

    def _fields(self, payload: bytes) -> dict[str, Any]:
        try:
            return self._newest().decode(payload)
        except PayloadError:
            for each in self._before:
                with contextlib.suppress(PayloadError):
                    return each.decode(payload)
            raise

    def _newest(self) -> Schema:
        if self._read is None:
            self._read = read_schema(self.path, self.text, self.form)
        return self._read


def read_schema(path: str, text: str, form: str = "json") -> Schema:
    """Returns the schema that a file's text is. Raises BadSchema."""
    file, _, part = path.partition("#")
    try:
        made = {".json": _json_schema, ".avsc": _avro, ".proto": _proto}[Path(file).suffix](text, part or form)
    except BadSchema as error:
        raise BadSchema(f"{path}: {error}") from None
    if not made.columns or len(made.columns) > FIELDS_MAX:
        raise BadSchema(f"{path}: no object with 1 to {FIELDS_MAX} fields")
    return made


# ------------------------------------------------------------------------------------------------ JSON Schema


def _json_schema(text: str, form: str) -> Schema:
    import jsonschema  # noqa: PLC0415  each format has a library of its own

    try:
        told = json.loads(text)
        kind = jsonschema.validators.validator_for(told, jsonschema.Draft202012Validator)
        kind.check_schema(told)
    except (ValueError, jsonschema.SchemaError) as error:
        raise BadSchema(f"no JSON Schema: {str(error).splitlines()[0]}") from None
    if not isinstance(told, dict) or not isinstance(told.get("properties"), dict):
        raise BadSchema("the schema of an object with properties is needed")
    if "$ref" in text and '"#' not in text:
        raise BadSchema("a $ref to another file; write it into this one")
    check = kind(told)

    def decode(payload: bytes) -> dict[str, Any]:
        value = _plain(payload, form)
        error = next(check.iter_errors(value), None)
        if error is not None:
            where = "/".join(str(part) for part in error.schema_path)
            raise PayloadError(f"does not fit {where[:200]}")
        if not isinstance(value, dict):
            raise PayloadError("no object")
        return value

    return Schema({name: _json_type(each) for name, each in told["properties"].items()}, decode)


def _json_type(told: Any) -> str:
    """Returns Spark's type; text, of JSON, for what has none."""
    kinds = told.get("type") if isinstance(told, dict) else None
    kind = next((each for each in kinds if each != "null"), None) if isinstance(kinds, list) else kinds
    if isinstance(kinds, list) and len([each for each in kinds if each != "null"]) != 1:
        return TEXT
    if kind == "string" and told.get("format") == "date-time":
        return "timestamp"
    if kind == "array":
        return f"array<{_json_type(told.get('items'))}>"
    if kind == "object" and told.get("properties"):
        parts = (f"`{name.replace('`', '``')}`: {_json_type(each)}" for name, each in told["properties"].items())
        return f"struct<{', '.join(parts)}>"
    return _SIMPLE.get(str(kind), TEXT)


def _plain(payload: bytes, form: str) -> Any:
    if form == "cbor":
        return plain_cbor(payload)
    try:
        return json.loads(messagepack_to_json(payload) if form == "messagepack" else payload.decode())
    except UnicodeDecodeError:
        raise PayloadError(NOT_UTF8) from None
    except PayloadError:
        raise
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"malformed ({type(error).__name__})") from None


# ------------------------------------------------------------------------------------------------ Avro


def _avro(text: str, _: str) -> Schema:
    import fastavro  # noqa: PLC0415

    try:
        parsed: Any = fastavro.parse_schema(json.loads(text))
        mark = int(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(parsed), "CRC-64-AVRO"), 16)
    except Exception as error:  # noqa: BLE001  errors of the library, and of Python
        raise BadSchema(f"no Avro schema: {type(error).__name__}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise BadSchema("an Avro record is needed")
    head = AVRO_MAGIC + mark.to_bytes(8, "big")

    def decode(payload: bytes) -> dict[str, Any]:
        at = 0
        if payload[:2] == AVRO_MAGIC:
            if payload[:10] != head:
                raise PayloadError("written with another Avro schema")
            at = 10
        source = BytesIO(payload[at:])
        try:
            value: Any = fastavro.schemaless_reader(source, parsed, None)
        except Exception as error:  # noqa: BLE001  errors of the library, and of Python
            raise PayloadError(f"malformed ({type(error).__name__})") from None
        if source.tell() != len(payload) - at:
            raise PayloadError("bytes behind the record")
        return {str(name): _jsonable(each) for name, each in value.items()}

    return Schema({each["name"]: _avro_type(each["type"]) for each in parsed["fields"]}, decode)


def _avro_type(told: Any) -> str:
    if isinstance(told, list):
        kinds = [each for each in told if each != "null"]
        return _avro_type(kinds[0]) if len(kinds) == 1 else TEXT
    if isinstance(told, dict):
        kind = told.get("type")
        if told.get("logicalType") in _AVRO_LOGICAL:
            return _AVRO_LOGICAL[told["logicalType"]]
        if kind == "record":
            parts = (f"`{each['name']}`: {_avro_type(each['type'])}" for each in told["fields"])
            return f"struct<{', '.join(parts)}>"
        if kind == "array":
            return f"array<{_avro_type(told['items'])}>"
        if kind == "map":
            return f"map<string, {_avro_type(told['values'])}>"
        return _avro_type(kind)
    return _AVRO.get(str(told), TEXT)


# ------------------------------------------------------------------------------------------------ Protocol Buffers


def _proto(text: str, part: str) -> Schema:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory  # noqa: PLC0415

    files = descriptor_pb2.FileDescriptorSet.FromString(_compiled(text))
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    own = pool.FindFileByName("schema.proto")
    names = list(own.message_types_by_name)
    wanted = names[:1] if part in ("", *FORMS) else [name for name in names if name == part]
    if not wanted:
        raise BadSchema(f"no message {part}" if names else "no message in it")
    kind = own.message_types_by_name[wanted[0]]
    made = message_factory.GetMessageClass(kind)

    def decode(payload: bytes) -> dict[str, Any]:
        try:
            return _of_message(made.FromString(payload))
        except (message.DecodeError, RecursionError) as error:
            raise PayloadError(f"malformed ({type(error).__name__})") from None

    return Schema({each.name: _proto_type(each) for each in kind.fields}, decode)


def _compiled(text: str) -> bytes:
    """Returns the descriptors of a .proto file, which may import those of Google alone."""
    import importlib.resources  # noqa: PLC0415
    import io  # noqa: PLC0415

    from grpc_tools import protoc  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="veilmq-proto-") as place:
        Path(place, "schema.proto").write_text(text)
        known = importlib.resources.files("grpc_tools") / "_proto"
        out = f"{place}/set"
        with contextlib.redirect_stderr(io.StringIO()):
            failed = protoc.main(
                ["protoc", f"-I{place}", f"-I{known}", "--include_imports", f"--descriptor_set_out={out}",
                 f"{place}/schema.proto"]
            )  # fmt: skip
        if failed:
            raise BadSchema("protoc does not take it; run it by hand to see why")
        return Path(out).read_bytes()


_BYTES = 12
_CPP = {1: "bigint", 2: "bigint", 3: "bigint", 4: "bigint", 5: "double", 6: "float", 7: "boolean", 8: "string",
        9: "string"}  # fmt: skip
_TIME = "google.protobuf.Timestamp"


def _proto_type(told: Any, *, repeats: bool = True) -> str:
    if repeats and told.is_repeated:
        if told.message_type is not None and told.message_type.GetOptions().map_entry:
            return f"map<string, {_proto_type(told.message_type.fields_by_name['value'])}>"
        return f"array<{_proto_type(told, repeats=False)}>"
    if told.message_type is not None:
        if told.message_type.full_name == _TIME:
            return "timestamp"
        return f"struct<{', '.join(f'`{each.name}`: {_proto_type(each)}' for each in told.message_type.fields)}>"
    return "binary" if told.type == _BYTES else _CPP[told.cpp_type]


def _of_message(value: Any) -> dict[str, Any]:
    """Returns fields by name; those that tell whether they are there and are not are left out."""
    found: dict[str, Any] = {}
    for each in value.DESCRIPTOR.fields:
        if each.has_presence and not value.HasField(each.name):
            continue
        told = getattr(value, each.name)
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            kind = each.message_type.fields_by_name["value"]
            found[each.name] = {str(key): _of_field(kind, told[key]) for key in told}
        else:
            found[each.name] = [_of_field(each, one) for one in told] if each.is_repeated else _of_field(each, told)
    return found


def _of_field(told: Any, value: Any) -> Any:
    if told.message_type is not None:
        if told.message_type.full_name == _TIME:
            return _jsonable(value.ToDatetime())
        return _of_message(value)
    if told.enum_type is not None:
        known = told.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return _jsonable(value)


# ------------------------------------------------------------------------------------------------ values


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, float) and value != value:  # noqa: PLR0124  NaN
        return "NaN"
    if isinstance(value, float) and abs(value) == float("inf"):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    return value


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
