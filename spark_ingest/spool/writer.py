"""The durable spool, as its one writer sees it: append a group, fsync it, roll over; seal what a crash left.

A group is on disk when `append` returns: only then may its publications be acknowledged, because MQTT does
not send again what was acknowledged. A segment that an earlier process wrote is sealed (what is whole in it
gets an index entry) and never appended to. The cap on bytes is a property to ask (`full`), not an error: the
receiver then stops acknowledging, and Receive Maximum stops the senders.

It holds one row of ciphertext, header and shares per publication. It knows no scope key and opens nothing.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from spark_ingest.errors import SpoolBusy, SpoolDamaged, SpoolError
from spark_ingest.spool.consumers import lock_file, sync_directory, write_durably
from spark_ingest.spool.segments import (
    CONSUMERS,
    RECEIVER_NAME,
    SCHEMA,
    ByteRange,
    Position,
    SegmentGroup,
    decode_entries,
    directory_bytes,
    encode_entry,
    open_segment,
    read_groups,
    segment_numbers,
    segment_path,
)

SEGMENT_BYTES = 64 << 20
"""A segment is the unit of trimming: small against the cap, large against the cost of a file."""


class SpoolRecord(NamedTuple):
    """One publication as the spool keeps it. `sealed` None: no good copy came; `reason` None: complete."""

    publisher: bytes
    sequence: int
    key_id: bytes
    wire_topic: str
    header: bytes
    sealed: bytes | None
    qos: int
    retain: bool
    published_us: int
    received_us: int
    reason: str | None = None

    def __repr__(self) -> str:
        return f"Record({self.publisher.hex()}, {self.sequence})"  # plain content is not for logs


@dataclass(frozen=True, slots=True)
class SpooledKey:
    """Key header frame and encoded shares of one data key: what a reader with the scope's key needs."""

    header: bytes
    shares: bytes = field(repr=False)


def checksum(header: bytes, sealed: bytes | None, shares: bytes | None) -> int:
    """CRC-32 over the parts of a row that nothing else protects."""
    return zlib.crc32(shares or b"", zlib.crc32(sealed or b"", zlib.crc32(header)))


def as_batch(records: Sequence[SpoolRecord], keys: Mapping[bytes, SpooledKey]) -> Any:
    """A group as record batch: each key's material stands on the first row that uses it, so that any range of
    whole groups can be read without another."""
    columns: list[Sequence[Any]] = list(zip(*records, strict=True))
    key_ids, headers, contents = columns[2], columns[4], columns[5]
    key_headers: list[bytes | None] = [None] * len(records)
    shares: list[bytes | None] = [None] * len(records)
    # Backwards, so that the first row of each key is what stays.
    for key_id, row in {key_id: row for row, key_id in reversed(list(enumerate(key_ids)))}.items():
        if (key := keys.get(key_id)) is not None:
            key_headers[row], shares[row] = key.header, key.shares
    columns += [key_headers, shares, list(map(checksum, headers, contents, shares))]
    arrays = [pa.array(values, column.type) for values, column in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class SpoolWriter:
    """Segments of one receiver. Not thread-safe: one call at a time.

    Order of use: construct (takes the lock, seals what is there), read `state` and `history`, `roll(state)`,
    then `append` groups, and `roll` again whenever `segment_full`. After an OSError in `append` or `roll` the
    writer is broken: close it and construct another.
    """

    def __init__(
        self,
        root: Path,
        receiver: str,
        *,
        cap_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        patience_s: float = 0,
    ) -> None:
        """Raises SpoolBusy when another process writes as `receiver`, SpoolDamaged for a strange segment."""
        if not RECEIVER_NAME.fullmatch(receiver) or receiver == CONSUMERS:
            raise SpoolError(f"receiver={receiver!r} is not a name; use letters, digits, '.', '-' and '_'")
        self._directory = root / receiver
        self._cap_bytes = cap_bytes
        self._segment_bytes = segment_bytes
        lock = lock_file(self._directory / "LOCK", patience_s)
        if lock is None:
            raise SpoolBusy(f"{self._directory} is being written by another process; stop it, or use receiver=NAME")
        self._lock: int | None = lock
        self._data = -1
        self._index = -1
        self._end = 0
        self._other_bytes = 0
        self._broken = False
        self.fsync_s = 0.0
        """Time that fsync of groups took."""
        self.written_bytes = 0
        """Of groups."""
        try:
            numbers = segment_numbers(self._directory)
            self._number = numbers[-1] if numbers else 0
            self._sealed = seal(self._directory, self._number) if numbers else None
        except BaseException:
            self.close()
            raise

    @property
    def state(self) -> bytes:
        """What the receiver handed to the last `roll` before the restart; empty for a new spool.

        It says what was known *before* the segment that `history` gives back.
        """
        try:
            return segment_path(self._directory, self._number, "state").read_bytes()
        except FileNotFoundError:
            return b""

    def history(self) -> Iterator[Any]:
        """Record batches of the newest segment of an earlier process: what came after `state`."""
        if self._sealed is not None:
            yield from read_groups(self._sealed)

    @property
    def segment(self) -> int:
        """Number of the newest segment; 0 in an empty spool."""
        return self._number

    @property
    def oldest_segment(self) -> int:
        """Number of the oldest segment that is not trimmed yet."""
        return next(iter(segment_numbers(self._directory)), self._number)

    @property
    def segment_full(self) -> bool:
        return self._end >= self._segment_bytes

    @property
    def full(self) -> bool:
        """The cap is reached: write nothing, acknowledge nothing, until a consumer has trimmed."""
        if self._other_bytes + self._end < self._cap_bytes:
            return False
        self._other_bytes = directory_bytes(self._directory) - self._end
        return self._other_bytes + self._end >= self._cap_bytes

    def roll(self, state: bytes) -> None:
        """Close the segment and begin the next; `state` lets a later process do without older segments."""
        self._check()
        self._broken = True  # until all of it is done
        if self._index >= 0:
            os.fsync(self._index)
        self._close_segment()
        number = self._number + 1
        write_durably(segment_path(self._directory, number, "state"), state)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._index = os.open(segment_path(self._directory, number, "index"), flags, 0o600)
        # The segment's name appears last: a reader that lists it finds a finished predecessor and an index.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._data = os.open(segment_path(self._directory, number), flags, 0o600)
        schema = SCHEMA.serialize().to_pybytes()
        _write_all(self._data, schema)
        os.fsync(self._data)
        sync_directory(self._directory)
        self._number = number
        self._end = len(schema)
        self._other_bytes = directory_bytes(self._directory) - self._end
        self._broken = False

    def append(self, records: Sequence[SpoolRecord], keys: Mapping[bytes, SpooledKey]) -> Position:
        """Write one group and fsync it; where it ends. Raises OSError (disk full, for one)."""
        self._check()
        if not records:
            raise SpoolError("a group holds one record at least")
        data = as_batch(records, keys).serialize()
        self._broken = True
        _write_all(self._data, data)
        began = time.perf_counter()
        os.fdatasync(self._data)
        self.fsync_s += time.perf_counter() - began
        self.written_bytes += data.size
        end = self._end + data.size
        # Not synced: an entry that a power failure takes is found again by `seal`.
        _write_all(self._index, encode_entry(SegmentGroup(end, len(records))))
        self._end = end
        self._broken = False
        return Position(self._number, end)

    def close(self) -> None:
        """Close files and let go of the lock. What was appended stays as it is."""
        self._close_segment()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _close_segment(self) -> None:
        for descriptor in (self._data, self._index):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._index = -1

    def _check(self) -> None:
        if self._lock is None or self._broken:
            raise SpoolError(f"{self._directory}: the writer is closed or failed; construct another one")


def seal(directory: Path, number: int) -> ByteRange | None:
    """Make a segment final: index what is whole, forget the rest; its readable range (None if empty).

    A group without index entry (the process died between fsync and entry, or a power failure took the entry)
    counts when all of its rows pass their checksum. The bytes behind the last whole group stay in the file,
    and nobody reads them: they were never acknowledged. Raises SpoolDamaged for a file that is not a segment.
    """
    path = segment_path(directory, number)
    index_path = segment_path(directory, number, "index")
    indexed = decode_entries(index_path.read_bytes()) if index_path.exists() else []
    try:
        buffer, first = open_segment(str(path))
    except SpoolDamaged:
        if indexed:
            raise
        # The process died while it made the file: nothing was ever acknowledged out of it.
        write_durably(index_path, b"")
        return None
    groups = [group for group in indexed if group.end <= buffer.size]
    if len(groups) < len(indexed):
        raise SpoolDamaged(f"{path} has {buffer.size} bytes, but {indexed[-1].end} were synced")
    groups += _whole_groups(buffer, groups[-1].end if groups else first)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    write_durably(index_path, b"".join(map(encode_entry, groups)))
    return ByteRange(str(path), 0, groups[-1].end, sum(group.rows for group in groups)) if groups else None


def _whole_groups(buffer: Any, start: int) -> Iterator[SegmentGroup]:
    """Groups from `start` on, up to the first that is torn."""
    source = pa.BufferReader(buffer.slice(start))
    while True:
        try:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), SCHEMA)
            batch.validate(full=True)
        except (pa.ArrowException, EOFError, OSError, ValueError):
            return
        rows = zip(*(batch.column(name).to_pylist() for name in ("header", "sealed", "shares", "check")), strict=True)
        if not batch.num_rows or any(checksum(*fields) != check for *fields, check in rows):
            return
        yield SegmentGroup(start + source.tell(), batch.num_rows)


def _write_all(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
