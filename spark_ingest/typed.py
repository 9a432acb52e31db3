"""Telemetry as columns that schema files say: of a topic filter, or of several by a YAML file.

    climate = typed(rows, "climate.json", topic="plant/+/climate", form="cbor")
    streams = typed_streams(rows, "schemas.yaml")

A query's columns are those of the file when the query begins, since Spark fixes columns there. An optional field that
the file gets later is checked and stands in column `more` at once, and is a column of the next query. Not here: schema
files themselves (`payloads.schemas`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyspark.sql import functions

from spark_ingest.errors import BadOption
from spark_ingest.functions import by_schema
from spark_ingest.payloads import BadSchema, PayloadError, SchemaFile

f: Any = functions  # its annotations know no function that takes Arrow arrays by type hints
_DECODED, _TYPED = "_veilmq_decoded", "_veilmq_typed"
_NEEDED, _KEYS = {"topic", "schema"}, {"topic", "schema", "form"}


def typed(rows: Any, schema: str, topic: str = "#", form: str = "json") -> Any:
    """Returns telemetry rows of a topic filter with a column for each field of a schema file, `more` and `reason`.

    `schema`: a file.json (JSON Schema), file.avsc or file.proto#MESSAGE; executors that find it at this path follow its
    changes. `form`: of a JSON Schema's payloads, `json`, `cbor` or `messagepack`. `more`: JSON of fields that the file
    did not have when the query began. `reason`: why a payload fits not; its columns are null. Columns of rows that have
    the name of a field keep it, with `row_` before. Raises BadOption.
    """
    file = _opened(schema, form)
    made = f.arrow_udf(_decoding(file), "value string, more string, reason string")(f.col("payload"))
    clashes = {name: f"row_{name}" for name in rows.columns if name in {*file.columns, "more", "reason"}}
    rows = rows.where(_matches(topic)).withColumn(_DECODED, made)
    told = by_schema(f.col(_DECODED)["value"], f.col(_DECODED)["reason"], file.ddl, "schema")
    shown = rows.withColumnsRenamed(clashes).withColumn(_TYPED, told)
    names = [name for name in shown.columns if name not in (_DECODED, _TYPED)]
    fields = [f.col(_TYPED)["value"].getField(name).alias(name) for name in file.columns]
    return shown.select(*names, *fields, f.col(_DECODED)["more"].alias("more"), f.col(_TYPED)["reason"].alias("reason"))


def typed_streams(rows: Any, config: str) -> dict[str, Any]:
    """Returns `typed` rows by name, as a YAML file says: `climate: {topic: plant/+/climate, schema: climate.json}`.

    Paths of schemas are relative to the file. Raises BadOption.
    """
    return {
        name: typed(rows, each["schema"], each["topic"], each.get("form", "json"))
        for name, each in read_schemas(config).items()
    }


def read_schemas(config: str) -> dict[str, dict[str, str]]:
    """Returns the entries of a YAML file, with paths of schemas from its folder. Raises BadOption."""
    try:
        told = yaml.safe_load(Path(config).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadOption(f"{config}: {str(error).splitlines()[0]}") from None
    entries = told if isinstance(told, dict) else {}
    if not entries:
        raise BadOption(f"{config}: no schemas; write e.g. climate: {{topic: plant/+/climate, schema: climate.json}}")
    for name, each in entries.items():
        fits = isinstance(each, dict) and _NEEDED <= each.keys() <= _KEYS
        if not fits or not all(isinstance(value, str) for value in each.values()):
            raise BadOption(f"{config}: {name} needs topic and schema, may have form, and nothing else; all are text")
    folder = Path(config).parent
    return {str(name): each | {"schema": str(folder / each["schema"])} for name, each in entries.items()}


def _opened(schema: str, form: str) -> SchemaFile:
    try:
        return SchemaFile.open(schema, form)
    except BadSchema as error:
        raise BadOption(str(error)) from None


def _decoding(file: SchemaFile) -> Any:
    def decode(payloads: pa.Array) -> pa.Array:
        file.renew()
        rows = []
        for payload in payloads.to_pylist():
            value = more = reason = None
            if payload is not None:
                try:
                    value, more = file.decode(payload)
                except PayloadError as error:
                    reason = f"schema: {error}"
            rows.append({"value": value, "more": more, "reason": reason})
        return pa.array(rows, pa.struct([(name, pa.string()) for name in ("value", "more", "reason")]))

    return decode


def _matches(topic: str) -> Any:
    """Returns whether column `topic` matches an MQTT topic filter. Raises BadOption."""
    levels = topic.split("/")
    if (
        not topic
        or any(("+" in each or "#" in each) and each not in ("+", "#") for each in levels)
        or ("#" in levels[:-1])
    ):
        raise BadOption(f"topic={topic!r} is no MQTT topic filter")
    if levels[-1] == "#" and len(levels) > 1:
        pattern = "/".join("[^/]*" if each == "+" else _literal(each) for each in levels[:-1]) + "(/.*)?"
    else:
        pattern = "/".join({"+": "[^/]*", "#": ".*"}.get(each, _literal(each)) for each in levels)
    return f.col("topic").rlike(f"(?s)^{pattern}$")


def _literal(level: str) -> str:
    return "".join(each if each.isalnum() else f"\\{each}" if each.isascii() else each for each in level)
