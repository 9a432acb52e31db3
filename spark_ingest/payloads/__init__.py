"""Payload formats as plain values: MessagePack, CBOR, SenML, Sparkplug B, and what a schema file says.

Imports nothing of ours.
"""

from __future__ import annotations

from spark_ingest.payloads.cbor import cbor_to_json
from spark_ingest.payloads.messagepack import NOT_UTF8, PAYLOAD_BYTES_MAX, PayloadError, messagepack_to_json
from spark_ingest.payloads.schema import BadSchema
from spark_ingest.payloads.schemas import KEPT, SchemaFile, newest_texts
from spark_ingest.payloads.senml import decode_senml
from spark_ingest.payloads.sparkplug import decode_sparkplug

__all__ = [
    "KEPT",
    "NOT_UTF8",
    "PAYLOAD_BYTES_MAX",
    "BadSchema",
    "PayloadError",
    "SchemaFile",
    "cbor_to_json",
    "decode_senml",
    "decode_sparkplug",
    "messagepack_to_json",
    "newest_texts",
]
