"""Payloads of JSON and CBOR that fit a JSON Schema, and payloads that do not."""

from __future__ import annotations

import json
from pathlib import Path

import cbor2
import pytest

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.schemas import SchemaFile
from tests.spark_ingest.payloads.climate import CLIMATE, file, told


def test_json_and_cbor_are_checked(tmp_path: Path) -> None:
    for form, dump in (("json", lambda each: json.dumps(each).encode()), ("cbor", cbor2.dumps)):
        schema = SchemaFile.open(file(tmp_path, "c.json", CLIMATE), form)
        assert told(schema, dump({"value": 1.5, "new": [2]})) == ({"value": 1.5}, {"new": [2]})
        for bad, why in (({"value": "1"}, "value/type"), ({}, "required"), ([], "type")):
            with pytest.raises(PayloadError, match=why):
                schema.decode(dump(bad))
    with pytest.raises(PayloadError, match="malformed"):
        SchemaFile.open(file(tmp_path, "c.json", CLIMATE)).decode(b'{"value":')
