"""The durable spool, as its readers see it: layout, positions, indexes, ranges of groups.

    SPOOL/consumers/NAME.json        how far the streaming query NAME has come (`consumers.py`)
    SPOOL/RECEIVER/LOCK              held by the one process that writes (`writer.py`)
    SPOOL/RECEIVER/00000001.arrow    segment: an Arrow IPC stream; one record batch = one group
    SPOOL/RECEIVER/00000001.index    one entry a group: (end byte, rows, CRC), written after the group's fsync
    SPOOL/RECEIVER/00000001.state    what the collector knew before this segment (`collector.py`)

A reader trusts nothing but index entries, so it never sees bytes that were not synced. An index is final as
soon as a segment with a higher number exists. This module writes nothing and opens no sealed content.
"""

from __future__ import annotations

import bisect
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from spark_ingest.errors import SpoolDamaged, SpoolError, SpoolGap

FORMAT = {b"veilmq.spool": b"1"}

SCHEMA = pa.schema(
    [
        pa.field("publisher", pa.binary(16), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("key_id", pa.binary(16), nullable=False),
        pa.field("wire_topic", pa.string(), nullable=False),
        # The signed header as it came (property `vmq`), its proof included: evidence, and associated data.
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
    ],
    metadata=FORMAT,
)

_NEEDED = tuple(each.name for each in SCHEMA if not each.nullable)
_ENTRY = struct.Struct(">QII")
ENTRY_BYTES = _ENTRY.size
RECEIVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CONSUMERS = "consumers"
_SEGMENT_NAME = re.compile(r"([0-9]{8})\.arrow")

Offset: TypeAlias = dict[str, dict[str, Any]]
"""{receiver: {"segment": number, "byte": end of the last group read}}: receivers sorted, so equal offsets are
equal JSON text, which is what Spark compares. A query of some of the devices adds of which (`reader`)."""


class Position(NamedTuple):
    """A place in one receiver's stream: after the group that ends at `byte` of `segment`."""

    segment: int
    byte: int


class Size(NamedTuple):
    """An amount of a spool; `bytes` on disk, still sealed."""

    rows: int
    bytes: int


class SegmentGroup(NamedTuple):
    """One index entry: `rows` rows end at `end`, the first group of a segment begins after the schema."""

    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Whole groups of one segment: what one task of a micro-batch reads."""

    path: str
    start: int
    end: int
    rows: int


def position_of(entry: Mapping[str, int]) -> Position:
    """A position as it stands in JSON."""
    return Position(int(entry["segment"]), int(entry["byte"]))


def as_offset(positions: Mapping[str, Position]) -> Offset:
    """Positions in the stable order and key order that Spark's comparison needs."""
    return {name: {"segment": at.segment, "byte": at.byte} for name, at in sorted(positions.items())}


def positions_of(offset: Mapping[str, Mapping[str, int]]) -> dict[str, Position]:
    """The inverse of `as_offset`. Raises SpoolError for JSON that is not an offset of ours."""
    try:
        return {name: position_of(entry) for name, entry in offset.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SpoolError("the checkpoint's offset is not one of a veilmq source; use another directory") from None


def segment_path(directory: Path, number: int, suffix: str = "arrow") -> Path:
    """The file of a segment."""
    return directory / f"{number:08d}.{suffix}"


def segment_numbers(directory: Path) -> list[int]:
    """Numbers of the segments in a receiver's directory, oldest first."""
    try:
        names = os.listdir(directory)  # noqa: PTH208  planning lists many names, and often: a Path each would be most of it
    except FileNotFoundError:
        return []
    return sorted(int(name[:8]) for name in names if name.endswith(".arrow") and _SEGMENT_NAME.fullmatch(name))


def encode_entry(group: SegmentGroup) -> bytes:
    """16 bytes: end (8), rows (4), CRC-32 of both (4)."""
    body = struct.pack(">QI", group.end, group.rows)
    return body + zlib.crc32(body).to_bytes(4, "big")


def decode_entries(data: bytes, after: int = 0) -> list[SegmentGroup]:
    """Entries up to the first that is torn or not beyond its predecessor (`after`: end of the last known)."""
    groups: list[SegmentGroup] = []
    for start in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        end, rows, check = _ENTRY.unpack_from(data, start)
        if zlib.crc32(data[start : start + ENTRY_BYTES - 4]) != check or end <= after:
            break
        groups.append(SegmentGroup(end, rows))
        after = end
    return groups


class SegmentIndex:
    """The growing index of one segment; `groups` reads only what was appended since the last call."""

    def __init__(self, directory: Path, number: int) -> None:
        self._path = segment_path(directory, number, "index")
        self._groups: list[SegmentGroup] = []
        self._rows = [0]  # of the groups before each, and of all
        self._final = False

    def groups(self, final: bool = False) -> Sequence[SegmentGroup]:
        """`final`: a later segment was listed before this call, so that the file need not be looked at again."""
        if self._final:
            return self._groups
        try:
            with self._path.open("rb") as file:
                file.seek(len(self._groups) * ENTRY_BYTES)
                fresh = decode_entries(file.read(), self._groups[-1].end if self._groups else 0)
        except FileNotFoundError:
            return self._groups  # the segment is being made, or was trimmed just now
        self._groups += fresh
        self._rows += accumulate((group.rows for group in fresh), initial=self._rows.pop())
        self._final = final
        return self._groups

    def size(self, first: int, end: int) -> Size:
        """Of the groups numbered `first` to `end` (exclusive), among those that were read."""
        if first >= end:
            return Size(0, 0)
        begin = self._groups[first - 1].end if first else 0
        return Size(self._rows[end] - self._rows[first], self._groups[end - 1].end - begin)


def open_segment(path: str) -> tuple[Any, int]:
    """Map a segment: (Arrow buffer of the file, byte at which its first group begins).

    Raises SpoolGap when it is not there, SpoolDamaged when it does not begin with our schema.
    """
    try:
        with pa.memory_map(path) as source:
            buffer = source.read_buffer(source.size())
            source.seek(0)
            schema = pa.ipc.read_schema(source)
            first = source.tell()
    except FileNotFoundError:
        raise SpoolGap(f"{path} is gone: it was trimmed or removed while a query still needed it") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise SpoolDamaged(f"{path} does not begin like a segment: {error}") from None
    if not schema.equals(SCHEMA, check_metadata=True):
        raise SpoolDamaged(f"{path} was written in another format; read it with the version that wrote it")
    return buffer, first


def read_groups(extent: ByteRange) -> Iterator[Any]:
    """The record batches (SCHEMA) of a range, mapped and not copied.

    Raises SpoolGap, SpoolDamaged.
    """
    buffer, first = open_segment(extent.path)
    start = max(extent.start, first)
    if extent.end > buffer.size:
        raise SpoolDamaged(f"{extent.path} has {buffer.size} bytes, but {extent.end} were synced")
    source = pa.BufferReader(buffer.slice(start, extent.end - start))
    while source.tell() < extent.end - start:
        try:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), SCHEMA)
            batch.validate(full=True)  # an offset that points elsewhere would be read all the same
            if any(batch.column(name).null_count for name in _NEEDED):
                raise pa.ArrowInvalid("a column without a value that every row has")
        except (pa.ArrowException, EOFError, OSError, ValueError) as error:
            raise SpoolDamaged(f"{extent.path} cannot be read near byte {start + source.tell()}: {error}") from None
        yield batch


class SpoolView:
    """What has been synced in a spool directory, for one reading process. Keeps indexes, no file descriptors.

    Works while receivers in this or other processes write, seal and trim.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._indexes: dict[tuple[str, int], SegmentIndex] = {}

    def receivers(self) -> list[str]:
        try:
            names = [path.name for path in self._root.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name != CONSUMERS and RECEIVER_NAME.fullmatch(name))

    def earliest(self) -> Offset:
        """The oldest position of every receiver that has a segment."""
        found = {name: segment_numbers(self._root / name) for name in self.receivers()}
        return as_offset({name: Position(numbers[0], 0) for name, numbers in found.items() if numbers})

    def latest(self) -> Offset:
        """The end of what is synced, for every receiver that has a segment."""
        found = {}
        for name in self.receivers():
            for number in reversed(segment_numbers(self._root / name)):
                groups = self._index(name, number).groups()
                found[name] = Position(number, groups[-1].end if groups else 0)
                if groups:
                    break
        return as_offset(found)

    def advance(
        self,
        start: Offset,
        max_rows: int | None = None,
        target: Mapping[str, Position] | None = None,
        *,
        max_bytes: int | None = None,
    ) -> Offset:
        """The furthest offset from `start` with about `max_rows` rows and `max_bytes` bytes, shared fairly between
        receivers.

        One group of each receiver at least, if it has any: a limit below a group's size may not stop us.
        `target`: nothing beyond these positions. Equal to `start` when nothing is new. Raises SpoolGap when
        what follows `start` was trimmed.
        """
        positions = positions_of(start)
        names = self.receivers()
        rows_left, bytes_left = max_rows, max_bytes
        for turn, name in enumerate(names):
            rows_share = None if rows_left is None else rows_left // (len(names) - turn)
            bytes_share = None if bytes_left is None else bytes_left // (len(names) - turn)
            rows = size = 0
            limit = None if target is None else target.get(name, Position(0, 0))
            for number, begin, group in self._groups_after(name, positions.get(name), limit):
                if rows and rows_share is not None and rows + group.rows > rows_share:
                    break
                if size and bytes_share is not None and size + group.end - begin > bytes_share:
                    break
                rows += group.rows
                size += group.end - begin
                positions[name] = Position(number, group.end)
            rows_left = None if rows_left is None else max(0, rows_left - rows)
            bytes_left = None if bytes_left is None else max(0, bytes_left - size)
        return as_offset(positions)

    def ranges(self, start: Offset, end: Offset, parts: int) -> list[ByteRange]:
        """The groups in (start, end] as about `parts` ranges of similar size, none across segments."""
        before = positions_of(start)
        after = positions_of(end)
        wanted: list[tuple[str, int, SegmentGroup]] = []
        for name, last in sorted(after.items()):
            groups = [
                (str(segment_path(self._root / name, number)), begin, group)
                for number, begin, group in self._groups_after(name, before.get(name), last)
            ]
            if last != before.get(name) and (not groups or Position(*_where(groups[-1])) != last):
                raise SpoolGap(
                    f"{self._root / name} ends before segment {last.segment} byte {last.byte}, where the "
                    "checkpoint points; restore the spool, or start with another checkpoint directory"
                )
            wanted += groups
        size = sum(group.end - begin for _, begin, group in wanted)
        return _join(wanted, max(RANGE_BYTES_MIN, -(-size // max(1, parts))))

    def rows_between(self, start: Offset, end: Offset) -> int:
        """Rows in (start, end]."""
        return sum(size.rows for size in self.sizes_between(start, end).values())

    def sizes_between(self, start: Offset, end: Offset) -> dict[str, Size]:
        """What lies in (start, end], by receiver."""
        before = positions_of(start)
        sizes = {}
        for name, last in positions_of(end).items():
            parts = [index.size(first, to) for _, index, first, to in self._stretches(name, before.get(name), last)]
            sizes[name] = Size(sum(part.rows for part in parts), sum(part.bytes for part in parts))
        return sizes

    def _groups_after(
        self, name: str, at: Position | None, last: Position | None = None
    ) -> Iterator[tuple[int, int, SegmentGroup]]:
        """(segment, first byte, group) in order, after `at`, up to and with `last`. Raises SpoolGap."""
        for number, index, first, end in self._stretches(name, at, last):
            groups = index.groups()
            begin = groups[first - 1].end if first else 0
            for group in islice(groups, first, end):
                yield number, begin, group
                begin = group.end

    def _stretches(
        self, name: str, at: Position | None, last: Position | None
    ) -> Iterator[tuple[int, SegmentIndex, int, int]]:
        """(segment, its index, first group, end of groups) of what lies after `at`, up to and with `last`.

        Costs as much for a segment as for a group. Raises SpoolGap.
        """
        # The directory is listed first: an index is final once a later segment is in the list.
        numbers = segment_numbers(self._root / name)
        if at is None:
            at = Position(numbers[0] if numbers else 0, 0)
        elif at.segment and (not numbers or at.segment not in numbers):
            raise SpoolGap(
                f"{self._root / name} has no segment {at.segment}, where the checkpoint points; restore "
                "the spool, or start with another checkpoint directory"
            )
        for key in [key for key in self._indexes if key[0] == name and key[1] < at.segment]:
            del self._indexes[key]
        for number in numbers[bisect.bisect_left(numbers, at.segment) :]:
            if last is not None and number > last.segment:
                return
            index = self._index(name, number)
            groups = index.groups(final=number != numbers[-1])
            first = _number_after(groups, at.byte) if number == at.segment else 0
            end = _number_after(groups, last.byte) if last is not None and number == last.segment else len(groups)
            yield number, index, first, end

    def _index(self, name: str, number: int) -> SegmentIndex:
        index = self._indexes.get((name, number))
        if index is None:
            index = self._indexes[name, number] = SegmentIndex(self._root / name, number)
        return index


def _number_after(groups: Sequence[SegmentGroup], byte: int) -> int:
    """How many groups end at `byte` or before."""
    return bisect.bisect_right(groups, byte, key=lambda group: group.end)


RANGE_BYTES_MIN = 64 * 1024
"""Below this a task costs more than what it reads."""
TASK_BYTES = 64 << 20
"""A task that is much larger only loses more when it fails, and leaves other cores idle."""


def _where(entry: tuple[str, int, SegmentGroup]) -> tuple[int, int]:
    return int(Path(entry[0]).stem), entry[2].end


def _join(entries: Sequence[tuple[str, int, SegmentGroup]], range_bytes: int) -> list[ByteRange]:
    """Neighbouring groups of one segment joined until a range holds about `range_bytes`."""
    ranges: list[ByteRange] = []
    for path, begin, group in entries:
        last = ranges[-1] if ranges else None
        fits = last is not None and (last.end - last.start) + (group.end - begin) / 2 <= range_bytes
        if last and fits and last.path == path and last.end == begin:
            ranges[-1] = ByteRange(path, last.start, group.end, last.rows + group.rows)
        else:
            ranges.append(ByteRange(path, begin, group.end, group.rows))
    return ranges


def in_tasks(ranges: Sequence[ByteRange], parts: int) -> list[tuple[ByteRange, ...]]:
    """Neighbouring ranges joined to about `parts` tasks of similar size; to more where these would be large.

    A range ends with its segment. A task need not: it costs as much before its first row as many rows do.
    """
    task_bytes = min(TASK_BYTES, -(-sum(each.end - each.start for each in ranges) // max(1, parts)))
    tasks: list[list[ByteRange]] = []
    held = 0
    for each in ranges:
        size = each.end - each.start
        if tasks and held + size / 2 <= task_bytes:
            tasks[-1].append(each)
            held += size
        else:
            tasks.append([each])
            held = size
    return [tuple(task) for task in tasks]


def directory_bytes(directory: Path) -> int:
    """Bytes of all files in a receiver's directory; files that vanish meanwhile count nothing."""
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
