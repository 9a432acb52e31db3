"""Payload formats as plain values: MessagePack and Sparkplug B.

Imports nothing of ours.
"""

from __future__ import annotations

from spark_ingest.payloads.messagepack import NOT_UTF8, PAYLOAD_BYTES_MAX, PayloadError, messagepack_to_json
from spark_ingest.payloads.sparkplug import decode_sparkplug

__all__ = [
    "NOT_UTF8",
    "PAYLOAD_BYTES_MAX",
    "PayloadError",
    "decode_sparkplug",
    "messagepack_to_json",
]
