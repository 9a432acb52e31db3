"""Telemetry as columns that schema files say: of a topic filter, or of several by a YAML file or a spool.

    climate = typed(rows, "climate.json", topic="plant/+/climate", form="cbor")
    streams = typed_streams(rows, "schemas.yaml")
    streams = typed_streams(rows, "/var/spool/veilmq")

Columns are the fields of the file at the call of `typed`. Spark fixes the columns of a query at its start: an optional
field that comes later is checked at once and stands in column `more`. In `foreachBatch`, `typed` is called for each
micro-batch, and the field is a column of the next. Not here: schema files (`payloads.schemas`) and lists of schema
files (`schema_config`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions

from spark_ingest.errors import BadOption
from spark_ingest.functions import by_schema
from spark_ingest.payloads import BadSchema, PayloadError, SchemaFile
from spark_ingest.schema_config import opened_schemas

f: Any = functions  # its annotations know no function that takes Arrow arrays by type hints
_DECODED, _TYPED = "_veilmq_decoded", "_veilmq_typed"


def typed(rows: Any, schema: str, topic: str = "#", form: str = "json") -> Any:
    """Returns telemetry rows of a topic filter with a column for each field of a schema file, `more` and `reason`.

    `schema`: a file.json (JSON Schema), file.avsc or file.proto#MESSAGE; executors that find it at this path follow its
    changes. `form`: of a JSON Schema's payloads, `json`, `cbor` or `messagepack`. `more`: JSON of fields that the file
    did not have when the query began. `reason`: why a payload fits not; its columns are null. Columns of rows that have
    the name of a field keep it, with `row_` before. Raises BadOption.
    """
    try:
        return _typed(rows, SchemaFile.open(schema, form), topic)
    except BadSchema as error:
        raise BadOption(str(error)) from None


def typed_streams(rows: Any, config: str) -> dict[str, Any]:
    """Returns `typed` rows by name, by `config`: a YAML file, or the directory of a spool with schemas.

    The file: `climate: {topic: plant/+/climate, schema: climate.json}`, with paths from its folder. Raises BadOption.
    """
    return {name: _typed(rows, file, topic) for name, (topic, file) in opened_schemas(Path(config)).items()}


def _typed(rows: Any, file: SchemaFile, topic: str) -> Any:
    made = f.arrow_udf(_decoding(file), "value string, more string, reason string")(f.col("payload"))
    own = {name.lower() for name in (*file.columns, "more", "reason")}  # Spark tells names apart by no case
    clashes = {name: f"row_{name}" for name in rows.columns if name.lower() in own}
    rows = rows.where(_matches(topic)).withColumn(_DECODED, made)
    told = by_schema(f.col(_DECODED)["value"], f.col(_DECODED)["reason"], file.ddl, "schema")
    shown = rows.withColumnsRenamed(clashes).withColumn(_TYPED, told)
    names = [name for name in shown.columns if name not in (_DECODED, _TYPED)]
    fields = [f.col(_TYPED)["value"].getField(name).alias(name) for name in file.columns]
    return shown.select(*names, *fields, f.col(_DECODED)["more"].alias("more"), f.col(_TYPED)["reason"].alias("reason"))


def _decoding(file: SchemaFile) -> Any:
    def decode(payloads: pa.Array) -> pa.Array:
        file.renew_texts()
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
