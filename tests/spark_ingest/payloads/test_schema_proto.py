"""Messages of Protocol Buffers: numbers, absent and repeated fields, times, names of enumerations, maps."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.payloads.messagepack import PayloadError
from spark_ingest.payloads.schemas import SchemaFile
from tests.spark_ingest.payloads.climate import PROTO, file, told


def test_a_message_of_protocol_buffers(tmp_path: Path) -> None:
    schema = SchemaFile.open(file(tmp_path, "c.proto", PROTO % ""))
    payload = bytes.fromhex(
        "09000000000000f83f 10ffffffffffffffff7f 2a020801 3001 3a0c0a0161 11000000000000f83f 420178"
    )
    assert told(schema, payload) == (
        {"value": 1.5, "n": 2**63 - 1, "bins": [], "at": "1970-01-01T00:00:01", "kind": "INDOOR", "by": {"a": 1.5},
         "raw": "eA=="}, None,
    )  # fmt: skip
    with pytest.raises(PayloadError, match="malformed"):
        schema.decode(b"\x09\x00")
