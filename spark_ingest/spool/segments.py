"""Segments of the durable spool: layout on disk, places in a spool, reading groups.

    SPOOL/consumers/NAME.json        the progress of the streaming query NAME (`consumers.py`)
    SPOOL/RECEIVER/LOCK              held by the one process that writes (`writer.py`)
    SPOOL/RECEIVER/00000001.arrow    segment: an Arrow IPC stream; one record batch = one group
    SPOOL/RECEIVER/00000001.index    one entry a group: (end byte, rows, CRC), written after the group's fsync
    SPOOL/RECEIVER/00000001.state    the collector's state before this segment (`collector.py`)
    SPOOL/RECEIVER/00000001.pack     the segment once more, quicker to read, if somebody packed it (`packs.py`)

A finished segment is *sealed*: segment and index end with the numbers of rows and groups and a
checksum over all index entries (`index.py`). Its schema names receiver and number, so that a file copied from
elsewhere is not taken for this spool's, and the part of a spool for which it was written.

Versions: a segment names the version that wrote it and the version that its readers need. Unknown columns are left
out, and columns an older version lacks are null, so that readers and the receiver may be upgraded in turn, readers
first. This module writes nothing and opens no sealed content.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from spark_ingest.errors import SpoolDamaged, SpoolError, SpoolGap

FORMAT = 2
"""The format that this version writes, and the newest that it reads. Format 1 has neither seals nor names."""
META_FORMAT, META_NEEDS = b"veilmq.spool", b"veilmq.spool.needs"
META_NAME, META_PART = b"veilmq.spool.segment", b"veilmq.spool.part"

SCHEMA = pa.schema(
    [
        pa.field("publisher", pa.binary(16), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("key_id", pa.binary(16), nullable=False),
        pa.field("wire_topic", pa.string(), nullable=False),
        # The signed header as it came (property `vmq`): evidence, and associated data.
        pa.field("header", pa.binary(), nullable=False),
        # Sealed content, or null when no good copy came.
        pa.field("sealed", pa.binary()),
        pa.field("qos", pa.int32(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("published_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("received_at", pa.timestamp("us", tz="UTC"), nullable=False),
        # Null: complete. Else why it never became complete.
        pa.field("reason", pa.string()),
        # On the first row of a group that uses this key: the key header and exactly k shares that fit it.
        pa.field("key_header", pa.binary()),
        pa.field("shares", pa.binary()),
        # CRC-32 of header, sealed and shares: tells a whole row from a torn one when a segment is sealed.
        pa.field("check", pa.uint32(), nullable=False),
        # What records of this row may be about (`RecordRights.to_text`), as the policy said when it came.
        pa.field("rights", pa.string()),
        # CRC-32 of topic, times, reason, rights and key header. Null: the row was written before there was one.
        pa.field("check_rest", pa.uint32()),
    ]
)

_NEEDED = tuple(each.name for each in SCHEMA if not each.nullable)
RECEIVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CONSUMERS = "consumers"
_SEGMENT_NAME = re.compile(r"([0-9]{8})\.arrow")
WAY_OUT = "restore it from a copy, or read on without what is lost: option failOnDataLoss=false"

Offset: TypeAlias = dict[str, dict[str, Any]]
"""{receiver: {"segment": number, "byte": end of the last group read}}: receivers sorted, so that equal offsets are
equal JSON text, which Spark compares. The reader adds the part of a spool and the devices that the offset is about.
"""


class Position(NamedTuple):
    """A place in a single receiver's stream: after the group ending at `byte` of `segment`."""

    segment: int
    byte: int


class Size(NamedTuple):
    """An amount of a spool: sealed batches, each of a publication or many, and their `bytes` on disk."""

    sealed_batches: int
    bytes: int


class SizeSums:
    """Running sums of the sizes of consecutive segments, from number `first` on; any stretch costs a single
    subtraction.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self._sums = [Size(0, 0)]  # of those before each, and of all

    @property
    def next_number(self) -> int:
        """The first number that was not added yet."""
        return self.first + len(self._sums) - 1

    def add_size(self, size: Size) -> None:
        """Adds the size of the next segment."""
        number, size_bytes = self._sums[-1]
        self._sums.append(Size(number + size.sealed_batches, size_bytes + size.bytes))

    def between(self, begin: int, end: int) -> Size:
        """Returns the size of segments `begin` to `end` (exclusive), all of which were added."""
        before, after = self._sums[begin - self.first], self._sums[end - self.first]
        return Size(after.sealed_batches - before.sealed_batches, after.bytes - before.bytes)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Whole groups of a segment, for a task of a micro-batch."""

    path: str
    start: int
    end: int
    rows: int


def position_of(entry: Mapping[str, int]) -> Position:
    """Returns the position of a JSON entry."""
    return Position(int(entry["segment"]), int(entry["byte"]))


def as_offset(positions: Mapping[str, Position]) -> Offset:
    """Returns positions as an offset, in the stable order that Spark's comparison needs."""
    return {name: {"segment": at.segment, "byte": at.byte} for name, at in sorted(positions.items())}


def positions_of(offset: Mapping[str, Mapping[str, int]]) -> dict[str, Position]:
    """Returns the positions of an offset. Raises SpoolError for other JSON."""
    try:
        return {name: position_of(entry) for name, entry in offset.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SpoolError("the checkpoint's offset is not one of a veilmq source; use another directory") from None


def segment_path(directory: Path, number: int, suffix: str = "arrow") -> Path:
    """Returns the path of a segment's file."""
    return directory / f"{number:08d}.{suffix}"


def segment_numbers(directory: Path) -> list[int]:
    """Returns the numbers of the segments in a receiver's directory, oldest first."""
    try:
        names = os.listdir(directory)  # noqa: PTH208  planning lists many names, and often: a Path each would be most of it
    except FileNotFoundError:
        return []
    return sorted(int(name[:8]) for name in names if name.endswith(".arrow") and _SEGMENT_NAME.fullmatch(name))


def checksum(header: bytes, sealed: bytes | None, shares: bytes | None) -> int:
    """Returns CRC-32 over the parts of a row no signature protects."""
    return zlib.crc32(shares or b"", zlib.crc32(sealed or b"", zlib.crc32(header)))


def checksum_of_rest(
    wire_topic: str, published_us: int, received_us: int, reason: str | None, rights: str | None, key: bytes | None
) -> int:
    """Returns CRC-32 over the parts that `checksum` leaves out: a change there would keep a row closed without a
    reason.
    """
    return zlib.crc32(key or b"", zlib.crc32(repr((wire_topic, published_us, received_us, reason, rights)).encode()))


_CHECKED = ("header", "sealed", "shares", "check")
_CHECKED_REST = ("wire_topic", "published_at", "received_at", "reason", "rights", "key_header", "check_rest")


def changed_row(batch: Any) -> int | None:
    """Returns the first row of a batch (SCHEMA) that does not fit its checksums; None if all do."""
    columns = (batch.column(name) for name in (*_CHECKED, *_CHECKED_REST))
    plain = (each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in columns)
    for number, values in enumerate(zip(*(each.to_pylist() for each in plain), strict=True)):
        *row, check = values[: len(_CHECKED)]
        *rest, check_rest = values[len(_CHECKED) :]
        if checksum(*row) != check or check_rest not in (None, checksum_of_rest(*rest)):
            return number
    return None


def segment_schema(directory: Path, number: int, part: str) -> Any:
    """Returns the schema of a segment. `part`: a random text, equal for all segments of a receiver's directory."""
    told = {META_FORMAT: str(FORMAT), META_NEEDS: str(FORMAT), META_NAME: _name(directory, number), META_PART: part}
    return SCHEMA.with_metadata(told)


def _name(directory: Path, number: int) -> str:
    return f"{directory.name}/{number:08d}"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment, mapped. `first`: byte at which its first group begins; `format`: the version that wrote it."""

    path: str
    buffer: Any
    first: int
    format: int
    part: str
    schema: Any

    @property
    def name(self) -> str:
        """Receiver and number from its schema."""
        where = Path(self.path)
        return _name(where.parent, int(where.stem))

    def batches(self, start: int, end: int) -> Iterator[tuple[Any, int]]:
        """Yields the record batches (SCHEMA) from byte `start` up to `end`, not copied, each with its end.

        Raises SpoolDamaged.
        """
        start = max(start, self.first)
        if end <= start:
            return
        if end > self.buffer.size:
            raise SpoolDamaged(f"{self.path} has {self.buffer.size} bytes, but {end} were synced; {WAY_OUT}")
        source = pa.BufferReader(self.buffer.slice(start, end - start))
        while source.tell() < end - start:
            try:
                batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), self.schema)
                batch.validate(full=True)  # an offset that points elsewhere would be read all the same
                if any(batch.column(name).null_count for name in _NEEDED):
                    raise pa.ArrowInvalid("a column without a value that every row has")
            except (pa.ArrowException, EOFError, OSError, ValueError) as error:
                where = f"{self.path} cannot be read near byte {start + source.tell()}"
                raise SpoolDamaged(f"{where}: {error}; {WAY_OUT}") from None
            yield self._as_ours(batch), start + source.tell()

    def _as_ours(self, batch: Any) -> Any:
        if self.schema.equals(SCHEMA):
            return batch
        nulls = pa.nulls(batch.num_rows)
        columns = [
            batch.column(each.name) if each.name in self.schema.names else nulls.cast(each.type) for each in SCHEMA
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def open_segment(path: str) -> SegmentFile:
    """Maps a segment. Raises SpoolGap for a missing file, SpoolDamaged for one that does not begin as a segment
    does.
    """
    try:
        with pa.memory_map(path) as source:
            buffer = source.read_buffer(source.size())
            source.seek(0)
            schema = pa.ipc.read_schema(source)
            first = source.tell()
    except FileNotFoundError:
        raise SpoolGap(f"{path} is gone: it was trimmed or removed while a query still needed it; {WAY_OUT}") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise SpoolDamaged(f"{path} does not begin like a segment: {error}; {WAY_OUT}") from None
    told = schema.metadata or {}
    try:
        version, needs = int(told[META_FORMAT]), int(told.get(META_NEEDS, told[META_FORMAT]))
    except (KeyError, ValueError):
        raise SpoolDamaged(f"{path} is no segment of a spool; {WAY_OUT}") from None
    if needs > FORMAT:
        raise SpoolDamaged(f"{path} was written by a newer version (format {version}); update this reader first")
    for field in SCHEMA:
        known = field.name in schema.names and schema.field(field.name).type.equals(field.type)
        if not known and (field.name in schema.names or not field.nullable):
            raise SpoolDamaged(f"{path} has no column {field.name} as every segment has; {WAY_OUT}")
    name = told.get(META_NAME, b"").decode()
    where = Path(path)
    if name and name != f"{where.parent.name}/{where.stem}":
        raise SpoolDamaged(f"{path} is segment {name} of another place; bring back the right one: {WAY_OUT}")
    return SegmentFile(path, buffer, first, version, told.get(META_PART, b"").decode(), schema)


def read_groups(extent: ByteRange) -> Iterator[Any]:
    """Yields the record batches (SCHEMA) of a range, mapped and not copied.

    Raises SpoolGap, SpoolDamaged.
    """
    for batch, _ in placed_groups(extent):
        yield batch


def placed_groups(extent: ByteRange) -> Iterator[tuple[Any, int]]:
    """Yields the record batches of a range as `read_groups` does, each with the byte at which it ends."""
    yield from open_segment(extent.path).batches(extent.start, extent.end)


def directory_bytes(directory: Path) -> int:
    """Returns the bytes of all files in a receiver's directory; files that vanish meanwhile count nothing."""
    total = 0
    try:
        for path in directory.iterdir():
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
    except FileNotFoundError:
        return 0
    return total
