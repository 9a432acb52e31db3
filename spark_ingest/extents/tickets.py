"""Requests of an executor and the form of the answers: JSON in a Flight ticket, chunks of bytes in Arrow batches.

    {"segment": [RECEIVER, NUMBER, START, END]}    the first bytes of a segment, and its bytes START to END
    {"keys": NAME}                                 the sealed file of scope keys of that name

Each chunk is a row (`at`, `data`): its place in the file, and the bytes. Metadata of the schema: `size` of the
file; absent when there is none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from spark_ingest.errors import SpoolError
from spark_ingest.spool import RECEIVER_NAME

TICKET_BYTES_MAX = 1024
META_SIZE = b"size"
CHUNKS = pa.schema([pa.field("at", pa.int64(), nullable=False), pa.field("data", pa.binary(), nullable=False)])
_SEGMENT_MAX = 99_999_999
"""Eight digits, as in names of segments."""


@dataclass(frozen=True, slots=True)
class SegmentTicket:
    """A stretch of a segment, in bytes."""

    receiver: str
    number: int
    start: int
    end: int

    def encode(self) -> bytes:
        """As it travels."""
        return json.dumps({"segment": [self.receiver, self.number, self.start, self.end]}).encode()


@dataclass(frozen=True, slots=True)
class KeysTicket:
    """A sealed file of scope keys."""

    name: str

    def encode(self) -> bytes:
        """As it travels."""
        return json.dumps({"keys": self.name}).encode()


def decode_ticket(data: bytes) -> SegmentTicket | KeysTicket:
    """Raises SpoolError for what is none: it comes from the network."""
    try:
        if len(data) > TICKET_BYTES_MAX:
            raise ValueError("too long")
        told = json.loads(data)
        if set(told) == {"keys"} and isinstance(told["keys"], str):
            return KeysTicket(told["keys"])
        receiver, *numbers = told["segment"]
        if set(told) != {"segment"} or not isinstance(receiver, str) or not RECEIVER_NAME.fullmatch(receiver):
            raise ValueError("no receiver")
        if len(numbers) != 3 or any(type(each) is not int for each in numbers):
            raise ValueError("no numbers")
        number, start, end = numbers
        if not (1 <= number <= _SEGMENT_MAX and 0 <= start <= end < 1 << 63):
            raise ValueError("no stretch")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SpoolError("a request that this version does not know; update both ends") from None
    return SegmentTicket(receiver, number, start, end)
