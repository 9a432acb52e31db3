"""Protocol Buffers: payloads are messages, of the file's first kind or of `FILE.proto#Message`.

Two bytes are an empty message, for which the library reserves all its fields. So messages are counted, each with its
fields, before the library reads the payload.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import tempfile
from pathlib import Path
from typing import Any

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.plain import PlainValues
from spark_ingest.payloads.schema import BadSchema, Schema, quoted

FILE_NAME = "schema.proto"
_BYTES = 12
"""FieldDescriptor.TYPE_BYTES."""
_CPP = {1: "bigint", 2: "bigint", 3: "bigint", 4: "bigint", 5: "double", 6: "float", 7: "boolean", 8: "string",
        9: "string"}  # fmt: skip
_TIME = "google.protobuf.Timestamp"
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
"""Kinds on the wire. Groups (3, 4) are not read."""
_VARINT_BYTES_MAX = 10
_MORE = 0x80


def proto_schema(text: str, part: str) -> Schema:
    """Returns the schema of a .proto file. `part`: the name of a message, or empty. Raises BadSchema."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    files = descriptor_pb2.FileDescriptorSet.FromString(_compiled(text))
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    own = pool.FindFileByName(FILE_NAME)
    names = list(own.message_types_by_name)
    wanted = [name for name in names if name == part] if part else names[:1]
    if not wanted:
        raise BadSchema(f"no message {part}" if names else "no message in it")
    kind = own.message_types_by_name[wanted[0]]
    made = message_factory.GetMessageClass(kind)

    def decode(payload: bytes) -> dict[str, Any]:
        _count_messages(payload, kind, PlainValues(), 0)
        try:
            return _Fields().of_message(made.FromString(payload), 0)
        except PayloadError:
            raise
        except Exception as error:  # noqa: BLE001  errors of the library, and of Python: a time that no calendar has
            raise PayloadError(f"malformed ({type(error).__name__})") from None

    return Schema({each.name: _type(each, (kind.full_name,)) for each in kind.fields}, decode)


def _compiled(text: str) -> bytes:
    """Returns the descriptors of a .proto file. The file may import Google's own files, and no others."""
    from grpc_tools import protoc  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="veilmq-proto-") as place:
        Path(place, FILE_NAME).write_text(text)
        known = importlib.resources.files("grpc_tools") / "_proto"
        out = f"{place}/set"
        with contextlib.redirect_stderr(io.StringIO()):
            failed = protoc.main(
                ["protoc", f"-I{place}", f"-I{known}", "--include_imports", f"--descriptor_set_out={out}",
                 f"{place}/{FILE_NAME}"]
            )  # fmt: skip
        if failed:
            raise BadSchema("protoc does not take it; run it by hand to see why")
        return Path(out).read_bytes()


def _type(told: Any, within: tuple[str, ...], *, repeats: bool = True) -> str:
    """Returns Spark's type. `within`: names of messages around the field; a message in itself is text, of JSON."""
    if repeats and told.is_repeated:
        if told.message_type is not None and told.message_type.GetOptions().map_entry:
            return f"map<string, {_type(told.message_type.fields_by_name['value'], within)}>"
        return f"array<{_type(told, within, repeats=False)}>"
    kind = told.message_type
    if kind is not None:
        if kind.full_name == _TIME:
            return "timestamp"
        inner = (*within, kind.full_name)
        if kind.full_name in within or not kind.fields:
            return "string"
        return f"struct<{', '.join(f'{quoted(each.name)}: {_type(each, inner)}' for each in kind.fields)}>"
    return "binary" if told.type == _BYTES else _CPP[told.cpp_type]


def _count_messages(payload: bytes, kind: Any, values: PlainValues, depth: int) -> None:
    """Counts the messages in a message, each with its fields. Raises PayloadError; the library tells other faults."""
    values.count_values(1 + len(kind.fields), depth)
    at, end = 0, len(payload)
    while at < end:
        tag, at = _varint(payload, at)
        wire = tag & 7
        if wire == _VARINT:
            _, at = _varint(payload, at)
        elif wire == _SIZED:
            size, at = _varint(payload, at)
            if size > end - at:
                raise PayloadError("malformed (cut short)")
            field = kind.fields_by_number.get(tag >> 3)
            if field is not None and field.message_type is not None:
                _count_messages(payload[at : at + size], field.message_type, values, depth + 1)
            at += size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise PayloadError("malformed (a group)")


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    found = 0
    for number, byte in enumerate(payload[at : at + _VARINT_BYTES_MAX]):
        found |= (byte & ~_MORE) << (7 * number)
        if byte < _MORE:
            return found, at + number + 1
    raise PayloadError("malformed (cut short)")


class _Fields:
    """Fields of a message as plain values, counted."""

    def __init__(self) -> None:
        self._values = PlainValues()

    def of_message(self, value: Any, depth: int) -> dict[str, Any]:
        """Returns fields by name, without absent fields that have presence."""
        found: dict[str, Any] = {}
        self._values.count_values(1, depth)
        for each in value.DESCRIPTOR.fields:
            if each.has_presence and not value.HasField(each.name):
                continue
            told = getattr(value, each.name)
            if each.message_type is not None and each.message_type.GetOptions().map_entry:
                kind = each.message_type.fields_by_name["value"]
                found[each.name] = {str(key): self._of_field(kind, told[key], depth + 1) for key in told}
            elif each.is_repeated:
                found[each.name] = [self._of_field(each, one, depth + 1) for one in told]
            else:
                found[each.name] = self._of_field(each, told, depth)
        return found

    def _of_field(self, told: Any, value: Any, depth: int) -> Any:
        if told.message_type is not None:
            if told.message_type.full_name == _TIME:
                return self._values.plain(value.ToDatetime(), depth)
            return self.of_message(value, depth + 1)
        if told.enum_type is not None:
            known = told.enum_type.values_by_number.get(value)
            value = known.name if known is not None else str(value)
        return self._values.plain(value, depth)
