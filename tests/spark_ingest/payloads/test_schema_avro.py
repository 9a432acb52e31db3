"""Payloads of an Avro schema, bare and as single objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.schemas import SchemaFile
from tests.spark_ingest.payloads.climate import RECORD, avro, file, told


def test_avro_data_and_single_objects(tmp_path: Path) -> None:
    schema = SchemaFile.open(file(tmp_path, "c.avsc", RECORD))
    for single in (False, True):
        payload = avro(RECORD, single, value=1.5, raw=b"x", at=1000, unit="bar")
        found = ({"value": 1.5, "raw": "eA==", "at": "1970-01-01T00:00:01+00:00", "unit": "bar"}, None)
        assert told(schema, payload) == found
        for bad in (payload[:-1], payload + b"x"):
            with pytest.raises(PayloadError):
                schema.decode(bad)
    with pytest.raises(PayloadError, match="another Avro schema"):
        schema.decode(b"\xc3\x01" + bytes(20))
