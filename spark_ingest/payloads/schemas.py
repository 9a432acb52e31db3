"""Schema files of payloads, JSON Schema, Avro and Protocol Buffers: columns of Spark, and checked payloads.

    climate.json    JSON Schema; payloads are JSON, or CBOR or MessagePack by `form`
    climate.avsc    an Avro record; payloads are one datum, or better single-object encoding, which names its schema
    climate.proto   Protocol Buffers; the file's first message, or FILE.proto#Message

The columns of a query are the fields of the file at its start. A changed file is read again: a payload is checked
against the newest text, an Avro payload else against earlier texts; fields without a column go into one text, `more`.
So an optional field may be added while queries run. A broken or absent file changes nothing. Not here: Spark (`typed`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from spark_ingest.payloads.messagepack import PAYLOAD_BYTES_MAX, PayloadError
from spark_ingest.payloads.plain import json_text
from spark_ingest.payloads.schema import BadSchema, Schema, quoted
from spark_ingest.payloads.schema_avro import avro_schema
from spark_ingest.payloads.schema_json import FORMS, json_schema
from spark_ingest.payloads.schema_proto import proto_schema

KEPT = "schemas.json"
"""In a spool: schemas of its receiver, by name, with `topic`, `schema` (a file's name), `form` and `text`."""
SUFFIXES = (".json", ".avsc", ".proto")
FILE_BYTES_MAX = 8 << 20
FIELDS_MAX = 1_000
"""Columns that a schema may make."""
READ_MAX = 64
"""Read schemas that a process keeps: protoc takes 10 ms for a file, and each task asks."""
BEFORE_MAX = 4
"""Texts of a changed Avro file whose payloads are still read."""


@dataclass
class SchemaFile:
    """A schema file that may change. Travels to executors, which find the file at the same path or keep its texts."""

    path: str
    """The file that is read again."""
    name: str
    """The schema's file, whose suffix says the format, with #MESSAGE of Protocol Buffers."""
    form: str = "json"
    entry: str | None = None
    """The name of an entry if `path` is a receiver's file of several (`KEPT`)."""
    texts: tuple[str, ...] = ()
    """The text of the file; of Avro earlier texts, too, newest first: publishers change later than the file."""
    columns: tuple[str, ...] = ()
    """The columns of the query, in order."""
    _stamp: tuple[int, int] | None = field(default=None, repr=False)

    @classmethod
    def open(cls, path: str, form: str = "json") -> SchemaFile:
        """Reads a file. Raises BadSchema."""
        return cls(path.partition("#")[0], path, form)._read_first()

    @classmethod
    def open_kept(cls, path: Path, entry: str) -> SchemaFile:
        """Reads an entry of a receiver's file. Raises BadSchema, and OSError, KeyError, TypeError for another file."""
        told = json.loads(path.read_text("utf-8"))[entry]
        return cls(str(path), told["schema"], told["form"], entry)._read_first()

    def _read_first(self) -> SchemaFile:
        if Path(self.name.partition("#")[0]).suffix not in SUFFIXES or self.form not in FORMS:
            known, forms = ", *".join(SUFFIXES), ", ".join(FORMS)
            raise BadSchema(f"{self.name}: a schema is one of *{known}, and form one of {forms}")
        try:
            self.texts = self._present_texts()
        except (OSError, ValueError) as error:
            raise BadSchema(f"{self.path}: {error}") from None
        self.columns = tuple(self._newest().columns)
        return self

    def _present_texts(self) -> tuple[str, ...]:
        """Returns the present text, and earlier texts that a receiver has kept. Raises OSError, ValueError."""
        with Path(self.path).open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)  # a device has no size, and no end
        if len(text) > FILE_BYTES_MAX:
            raise ValueError(f"larger than {FILE_BYTES_MAX} bytes")
        if self.entry is None:
            return (text.decode(),)
        kept = json.loads(text)
        found = kept.get(self.entry) if isinstance(kept, dict) else None
        texts = found.get("texts") if isinstance(found, dict) else None
        if not isinstance(texts, list) or not texts or not all(isinstance(each, str) for each in texts):
            raise ValueError(f"no schema {self.entry}")
        return tuple(texts)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the settings without the time of reading: another machine looks at its own file."""
        return self.__dict__ | {"_stamp": None}

    @property
    def ddl(self) -> str:
        """Spark's words for the columns."""
        known = self._newest().columns
        return ", ".join(f"{quoted(name)} {known[name]}" for name in self.columns)

    def renew_texts(self) -> None:
        """Reads a changed file again; a broken file changes nothing."""
        try:
            told = Path(self.path).stat()
            stamp = (told.st_mtime_ns, told.st_size)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            texts = self._present_texts()
            read_schema(self.name, texts[0], self.form)
            self.texts = newest_texts(self.name, (*texts, *self.texts))
        except (OSError, ValueError):
            return

    def decode(self, payload: bytes) -> tuple[str, str | None]:
        """Returns the query's columns as JSON, and other fields as JSON or None. Raises PayloadError."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise PayloadError(f"larger than {PAYLOAD_BYTES_MAX} bytes")
        fields = self._fields(payload)
        own = {name: fields[name] for name in self.columns if fields.get(name) is not None}
        more = {name: value for name, value in fields.items() if name not in self.columns}
        return json_text(own), json_text(more) if more else None

    def _fields(self, payload: bytes) -> dict[str, Any]:
        try:
            return self._newest().decode(payload)
        except PayloadError:
            for text in self.texts[1:]:
                with contextlib.suppress(PayloadError):
                    return read_schema(self.name, text, self.form).decode(payload)
            raise

    def _newest(self) -> Schema:
        return read_schema(self.name, self.texts[0], self.form)


def newest_texts(name: str, texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the texts of a file for reading payloads, newest first, each once: of Avro several."""
    known = tuple(dict.fromkeys(texts))
    return known[: 1 + BEFORE_MAX] if Path(name).suffix == ".avsc" else known[:1]


@lru_cache(maxsize=READ_MAX)
def read_schema(path: str, text: str, form: str = "json") -> Schema:
    """Returns the schema that a file's text is. Raises BadSchema."""
    file, _, part = path.partition("#")
    try:
        if Path(file).suffix == ".json":
            made = json_schema(text, form)
        else:
            made = avro_schema(text) if Path(file).suffix == ".avsc" else proto_schema(text, part)
    except BadSchema as error:
        raise BadSchema(f"{path}: {error}") from None
    if not made.columns or len(made.columns) > FIELDS_MAX:
        raise BadSchema(f"{path}: no object with 1 to {FIELDS_MAX} fields")
    return made
