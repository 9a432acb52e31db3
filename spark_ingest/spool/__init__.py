"""The durable spool: segments as readers and as the one writer see them, consumers, what stands how far.

Imports `errors`; knows no key and no wire.
"""

from __future__ import annotations

from spark_ingest.spool.consumers import Consumer, forget, give_up, make_room, read_place, release
from spark_ingest.spool.ledger import HeldStretch
from spark_ingest.spool.segments import (
    CONSUMERS,
    RECEIVER_NAME,
    SCHEMA,
    ByteRange,
    Offset,
    Position,
    as_offset,
    directory_bytes,
    placed_groups,
    positions_of,
    read_groups,
)
from spark_ingest.spool.sharding import DEVICE_LEVEL, LEVELS_MAX, Shard, parse_shard
from spark_ingest.spool.standing import standings
from spark_ingest.spool.trouble import tell_trouble
from spark_ingest.spool.view import SpoolView, groups_of, in_tasks, salvaged_groups
from spark_ingest.spool.writer import SEGMENT_BYTES, RememberedPart, SpooledKey, SpoolRecord, SpoolWriter

__all__ = [
    "CONSUMERS",
    "DEVICE_LEVEL",
    "LEVELS_MAX",
    "RECEIVER_NAME",
    "SCHEMA",
    "SEGMENT_BYTES",
    "ByteRange",
    "Consumer",
    "HeldStretch",
    "Offset",
    "Position",
    "RememberedPart",
    "Shard",
    "SpoolRecord",
    "SpoolView",
    "SpoolWriter",
    "SpooledKey",
    "as_offset",
    "directory_bytes",
    "forget",
    "give_up",
    "groups_of",
    "in_tasks",
    "make_room",
    "parse_shard",
    "placed_groups",
    "positions_of",
    "read_groups",
    "read_place",
    "release",
    "salvaged_groups",
    "standings",
    "tell_trouble",
]
