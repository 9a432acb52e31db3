"""Files of schemas: of a job, and of a receiver that keeps them in its spool and follows their changes."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import fastavro
import pytest

from spark_ingest.errors import BadOption
from spark_ingest.options import parse_options
from spark_ingest.schema_config import KeptSchemas, SchemaEntry, opened_schemas, read_entries

CLIMATE: dict[str, Any] = {"type": "object", "properties": {"value": {"type": "number"}}}


def record(*fields: str) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": "double"} for name in fields]}


def write(path: Path, told: Any, age: int = 0) -> None:
    path.write_text(told if isinstance(told, str) else json.dumps(told))
    os.utime(path, (1e9 + age, 1e9 + age))


def datum(schema: dict[str, Any], **fields: float) -> bytes:
    out = io.BytesIO()
    parsed = fastavro.parse_schema(schema)
    mark = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(parsed), "CRC-64-AVRO")
    out.write(b"\xc3\x01" + int(mark, 16).to_bytes(8, "big"))
    fastavro.schemaless_writer(out, parsed, fields)
    return out.getvalue()


def test_a_file_names_topics_and_schemas(tmp_path: Path) -> None:
    config = tmp_path / "schemas.yaml"
    config.write_text("climate: {topic: plant/+/climate, schema: climate.json, form: cbor}\n")
    assert read_entries(config) == {"climate": SchemaEntry("plant/+/climate", str(tmp_path / "climate.json"), "cbor")}


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "no schemas"), ("a: {topic: x}", "needs topic and schema"), ("[", "schemas.yaml"),
     ("a: {topic: x, schema: y, more: z}", "nothing else"),
     ("a: {topic: x/#/y, schema: c.json}", "no MQTT topic filter"),
     ("a: {topic: x, schema: none.json}", "No such file"), ("a: {topic: x, schema: c.json, form: xml}", "form one of"),
     ("a: {topic: x, schema: c.xsd}", r"\*.json")],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    config = tmp_path / "schemas.yaml"
    config.write_text(text)
    write(tmp_path / "c.json", CLIMATE)
    with pytest.raises(BadOption, match=why) as error:
        KeptSchemas(config, tmp_path / "spool").keep_schemas()
    assert "\n" not in str(error.value)
    assert not (tmp_path / "spool").exists()


def test_a_device_is_no_file_of_schemas() -> None:
    with pytest.raises(BadOption, match="no schemas"):
        read_entries(Path("/dev/zero"))


def test_a_receiver_keeps_schemas_and_follows_their_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, file, spool = tmp_path / "schemas.yaml", tmp_path / "climate.json", tmp_path / "spool"
    write(config, "climate: {topic: plant/+/climate, schema: climate.json}")
    write(file, CLIMATE)
    kept = KeptSchemas(config, spool)
    kept.keep_schemas()
    assert stat.S_IMODE((spool / "schemas.json").stat().st_mode) == 0o600
    ((name, (topic, schema)),) = opened_schemas(spool).items()
    assert (name, topic, schema.ddl) == ("climate", "plant/+/climate", "`value` double")

    write(file, {**CLIMATE, "properties": {**CLIMATE["properties"], "ppm": {"type": "integer"}}}, 1)
    with caplog.at_level(logging.INFO):
        kept.renew_schemas()
        write(file, "{", 2)
        kept.renew_schemas()
        kept.renew_schemas()
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        f"the schemas of {config} are in the spool anew", "the schemas stay as they were",
    ]  # fmt: skip
    schema.renew_texts()
    assert schema.decode(b'{"value": 1, "ppm": 4}') == ('{"value":1}', '{"ppm":4}'), "columns of the start"
    assert opened_schemas(spool)["climate"][1].ddl == "`value` double, `ppm` bigint"
    write(spool / "schemas.json", "{}", 3)
    schema.renew_texts()
    assert schema.decode(b'{"value": 1}')[0] == '{"value":1}', "an entry that is gone changes nothing"


def test_texts_of_avro_before_are_kept_over_restarts(tmp_path: Path) -> None:
    config, file, spool = tmp_path / "schemas.yaml", tmp_path / "r.avsc", tmp_path / "spool"
    write(config, "r: {topic: '#', schema: r.avsc}")
    for number in range(7):
        write(file, record(*(f"f{each}" for each in range(number + 1))), number)
        KeptSchemas(config, spool).keep_schemas()
    schema = opened_schemas(spool)["r"][1]
    assert len(schema.texts) == 5
    assert schema.decode(datum(record("f0", "f1", "f2"), f0=1, f1=2, f2=3))[0] == '{"f0":1.0,"f1":2.0,"f2":3.0}'
    with pytest.raises(ValueError, match="another Avro schema"):
        schema.decode(datum(record("f0"), f0=1))


@pytest.mark.parametrize("content", [None, "[]", '{"a": 1}', '{"a": {"topic": "x"}}', "{"])
def test_a_spool_without_usable_schemas_is_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "schemas.json").write_text(content)
    with pytest.raises(BadOption, match="--schemas FILE"):
        opened_schemas(tmp_path)


def test_only_who_receives_keeps_schemas() -> None:
    told = {"spool": "/s", "grants": "/k", "schemas": "/x.yaml"}
    with pytest.raises(BadOption, match="for who receives"):
        parse_options(told)
    assert parse_options(told | {"identity": "/i", "overlay": "/o"}).schemas == Path("/x.yaml")
