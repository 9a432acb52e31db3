"""The durable spool: segments for readers and for the one writer, consumers and their progress.

Imports `errors`; knows no key and no wire.
"""

from __future__ import annotations

from spark_ingest.spool.consumers import (
    UNNAMED_KEPT_S,
    Consumer,
    alone_packing,
    first_offset,
    forget,
    give_up,
    make_room,
    nobody_trims,
    place_of,
    read_place,
    release,
)
from spark_ingest.spool.index import SegmentIndex
from spark_ingest.spool.ledger import HeldStretch
from spark_ingest.spool.packs import (
    ANEW,
    PackFile,
    PackRun,
    PackTable,
    erase_pack,
    erase_unfinished,
    pack_of,
    pack_path,
    sealed_end,
    write_pack,
)
from spark_ingest.spool.segments import (
    CONSUMERS,
    RECEIVER_NAME,
    SCHEMA,
    WAY_OUT,
    ByteRange,
    Offset,
    Position,
    SegmentFile,
    as_offset,
    changed_row,
    directory_bytes,
    open_segment,
    placed_groups,
    positions_of,
    read_groups,
    segment_numbers,
    segment_path,
)
from spark_ingest.spool.sharding import BLOCK_BITS, Shard, parse_shard
from spark_ingest.spool.standing import standings
from spark_ingest.spool.trouble import tell_trouble
from spark_ingest.spool.view import SpoolView, groups_of, in_tasks, salvaged_groups
from spark_ingest.spool.writer import SEGMENT_BYTES, RememberedPart, SpooledKey, SpoolRecord, SpoolWriter

__all__ = [
    "ANEW",
    "BLOCK_BITS",
    "CONSUMERS",
    "RECEIVER_NAME",
    "SCHEMA",
    "SEGMENT_BYTES",
    "UNNAMED_KEPT_S",
    "WAY_OUT",
    "ByteRange",
    "Consumer",
    "HeldStretch",
    "Offset",
    "PackFile",
    "PackRun",
    "PackTable",
    "Position",
    "RememberedPart",
    "SegmentFile",
    "SegmentIndex",
    "Shard",
    "SpoolRecord",
    "SpoolView",
    "SpoolWriter",
    "SpooledKey",
    "alone_packing",
    "as_offset",
    "changed_row",
    "directory_bytes",
    "erase_pack",
    "erase_unfinished",
    "first_offset",
    "forget",
    "give_up",
    "groups_of",
    "in_tasks",
    "make_room",
    "nobody_trims",
    "open_segment",
    "pack_of",
    "pack_path",
    "parse_shard",
    "place_of",
    "placed_groups",
    "positions_of",
    "read_groups",
    "read_place",
    "release",
    "salvaged_groups",
    "sealed_end",
    "segment_numbers",
    "segment_path",
    "standings",
    "tell_trouble",
    "write_pack",
]
