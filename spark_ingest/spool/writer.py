"""The writer of a spool: appends a group, syncs it, begins new segments; seals segments a crash left.

A group is on disk when `append` returns: only then may its publications be acknowledged, because MQTT never
sends an acknowledged publication again. A segment of an earlier process is sealed (its whole groups
get index entries) and never appended to. The cap on bytes is a property to ask (`full`), not an error: the
receiver then stops acknowledging, and Receive Maximum stops the senders.

The spool holds a single row of ciphertext, header and shares per publication. The writer knows no scope key and opens
nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from gateway.files import sync_directory, write_durably
from spark_ingest.errors import SpoolBusy, SpoolDamaged, SpoolError
from spark_ingest.spool.consumers import lock_file
from spark_ingest.spool.index import (
    ENTRY_BYTES,
    SEAL_BYTES,
    STREAM_END,
    SegmentGroup,
    Times,
    decode_entries,
    encode_entry,
    encode_seal,
    sealed_times,
    whole_groups,
)
from spark_ingest.spool.segments import (
    CONSUMERS,
    RECEIVER_NAME,
    SCHEMA,
    ByteRange,
    Position,
    checksum,
    checksum_of_rest,
    directory_bytes,
    open_segment,
    read_groups,
    segment_numbers,
    segment_path,
    segment_schema,
)

SEGMENT_BYTES = 64 << 20
"""A segment is the unit of trimming: small against the cap, large against the cost of a file."""


class SpoolRecord(NamedTuple):
    """A publication in the spool. `sealed` None: no good copy came; `reason` None: complete."""

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
    rights: str | None = None

    def __repr__(self) -> str:
        return f"Record({self.publisher.hex()}, {self.sequence})"  # plain content is not for logs


@dataclass(frozen=True, slots=True)
class SpooledKey:
    """The key header frame and the encoded shares of a data key, for a reader with the scope's key."""

    header: bytes
    shares: bytes = field(repr=False)


def as_batch(records: Sequence[SpoolRecord], keys: Mapping[bytes, SpooledKey]) -> Any:
    """Returns a group as record batch.

    Each key's material stands on the first row using it, so that any range of whole groups can be read alone.
    """
    *columns, rights = list[Sequence[Any]](zip(*records, strict=True))
    key_ids, headers, contents = columns[2], columns[4], columns[5]
    key_headers: list[bytes | None] = [None] * len(records)
    shares: list[bytes | None] = [None] * len(records)
    # Backwards, so that the first row of each key is what stays.
    for key_id, row in {key_id: row for row, key_id in reversed(list(enumerate(key_ids)))}.items():
        if (key := keys.get(key_id)) is not None:
            key_headers[row], shares[row] = key.header, key.shares
    topics, (published, received, reasons) = columns[3], columns[8:11]
    checks = list(map(checksum, headers, contents, shares))
    rest = list(map(checksum_of_rest, topics, published, received, reasons, rights, key_headers))
    columns += [key_headers, shares, checks, rights, rest]
    arrays = [pa.array(values, column.type) for values, column in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class RememberedPart:
    """The memory of a part of the spool, for the next process and for processes writing beside it."""

    def __init__(self, directory: Path, numbers: Sequence[int] | None = None) -> None:
        """Takes the directory and, if they are known, the `numbers` of its segments."""
        self._directory = directory
        self._numbers = segment_numbers(directory) if numbers is None else numbers

    @property
    def _known_until(self) -> int:
        """Returns the number of an earlier process's newest segment with a state; 0 if the present segments are all
        there were.

        An older state and the rows since then make up for a missing state. Raises SpoolDamaged.
        """
        for number in reversed(self._numbers):
            if segment_path(self._directory, number, "state").exists():
                return number
        if self._numbers and self._numbers[0] > 1:
            raise SpoolDamaged(
                f"{self._directory} has no .state file, so rows would be written twice: restore one from a copy; or "
                "let queries read what is there, move the directory away and start anew"
            )
        return 0

    @property
    def state(self) -> bytes:
        """Returns the state as `SpoolWriter.state` does."""
        number = self._known_until
        return segment_path(self._directory, number, "state").read_bytes() if number else b""

    def history(self) -> Iterator[Any]:
        """Yields the record batches as `SpoolWriter.history` does."""
        for number in [each for each in self._numbers if each >= self._known_until]:
            groups = decode_entries(segment_path(self._directory, number, "index").read_bytes())
            if groups:
                yield from read_groups(ByteRange(str(segment_path(self._directory, number)), 0, groups[-1].end, 0))


class SpoolWriter:
    """The writer of a receiver's segments. Not thread-safe: one call at a time.

    Order of use: construct (takes the lock, seals old segments), read `state` and `history`, `roll(state)`,
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
        part: str = "",
    ) -> None:
        """Takes the lock and seals old segments. `part`: names a new spool (`segment_schema`); at random if empty.

        Raises SpoolBusy if another process writes as `receiver`, SpoolDamaged for a strange segment.
        """
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
        self._groups: list[SegmentGroup] = []
        self._times = Times()
        self._other_bytes = 0
        self._broken = False
        self.fsync_s = 0.0
        """Time that fsync of groups took."""
        self.written_bytes = 0
        """Of groups."""
        try:
            numbers = segment_numbers(self._directory)
            self._number = numbers[-1] if numbers else 0
            self._numbers = numbers
            self._part = seal(self._directory, self._number) if numbers else ""
            self._part = self._part or part or os.urandom(8).hex()
        except BaseException:
            self.close()
            raise

    @property
    def state(self) -> bytes:
        """Returns the state given to the last `roll` before the restart; empty for a new spool.

        The state is of the time *before* the segments in `history`. Raises SpoolDamaged.
        """
        return RememberedPart(self._directory, self._numbers).state

    def history(self) -> Iterator[Any]:
        """Yields record batches of an earlier process's newest segment, received after `state`.

        Where states are missing, older segments come too. Raises SpoolDamaged.
        """
        return RememberedPart(self._directory, self._numbers).history()

    @property
    def segment(self) -> int:
        """The number of the newest segment; 0 in an empty spool."""
        return self._number

    @property
    def oldest_segment(self) -> int:
        """The number of the oldest segment that is not trimmed yet."""
        return next(iter(segment_numbers(self._directory)), self._number)

    @property
    def segment_full(self) -> bool:
        return self._end >= self._segment_bytes

    @property
    def full(self) -> bool:
        """True if the cap is reached: nothing may be written or acknowledged until a consumer has trimmed."""
        if self._other_bytes + self._end < self._cap_bytes:
            return False
        self._other_bytes = directory_bytes(self._directory) - self._end
        return self._other_bytes + self._end >= self._cap_bytes

    def roll(self, state: bytes) -> None:
        """Closes the segment and begins the next; with `state`, a later process needs no older segments."""
        self._check_open()
        self._broken = True  # until all of it is done
        self._seal()
        number = self._number + 1
        write_durably(segment_path(self._directory, number, "state"), state)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._index = os.open(segment_path(self._directory, number, "index"), flags, 0o600)
        # The segment's name appears last: a reader that lists it finds a finished predecessor and an index.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._data = os.open(segment_path(self._directory, number), flags, 0o600)
        schema = segment_schema(self._directory, number, self._part).serialize().to_pybytes()
        _write_all(self._data, schema)
        os.fsync(self._data)
        sync_directory(self._directory)
        self._number = number
        self._end = len(schema)
        self._groups, self._times = [], Times()
        self._other_bytes = directory_bytes(self._directory) - self._end
        self._broken = False

    def append(self, records: Sequence[SpoolRecord], keys: Mapping[bytes, SpooledKey]) -> Position:
        """Writes a single group and syncs it; returns its end. Raises OSError, for instance for a full disk."""
        self._check_open()
        if not records:
            raise SpoolError("a group holds one record at least")
        batch = as_batch(records, keys)
        data = batch.serialize()
        self._broken = True
        _write_all(self._data, data)
        began = time.perf_counter()
        os.fdatasync(self._data)
        self.fsync_s += time.perf_counter() - began
        self.written_bytes += data.size
        end = self._end + data.size
        # Not synced: an entry that a power failure takes is found again by `seal`.
        self._groups.append(SegmentGroup(end, len(records)))
        _write_all(self._index, encode_entry(self._groups[-1]))
        self._times = self._times.with_batch(batch)
        self._end = end
        self._broken = False
        return Position(self._number, end)

    def close(self) -> None:
        """Closes files and releases the lock. Appended groups stay, sealed if the disk allows it."""
        if not self._broken:
            with contextlib.suppress(OSError):  # the next process does it
                self._seal()
        self._close_segment()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _seal(self) -> None:
        """Seals the segment, which grows no more. Raises OSError."""
        if self._data >= 0:
            end = encode_seal(self._groups, self._times)
            _write_all(self._data, STREAM_END + end)
            os.fsync(self._data)
            _write_all(self._index, end)
            os.fsync(self._index)
        self._close_segment()

    def _close_segment(self) -> None:
        for descriptor in (self._data, self._index):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._index = -1

    def _check_open(self) -> None:
        if self._lock is None or self._broken:
            raise SpoolError(f"{self._directory}: the writer is closed or failed; construct another one")


def seal(directory: Path, number: int) -> str:
    """Seals a segment of an earlier process; returns the part of a spool to which it belongs.

    A group without index entry (the process died between fsync and entry, or a power failure took the entry)
    counts if all of its rows pass their checksum. Bytes behind the last whole group are cut off: they were never
    acknowledged, and nobody has read them. Raises SpoolDamaged for a file that is not a segment.
    """
    path = segment_path(directory, number)
    index_path = segment_path(directory, number, "index")
    told = index_path.read_bytes() if index_path.exists() else b""
    indexed = decode_entries(told)
    try:
        segment = open_segment(str(path))
    except SpoolDamaged:
        if indexed:
            raise
        # The process died while it made the file: nothing was ever acknowledged out of it.
        write_durably(index_path, encode_seal([], Times()))
        return ""
    if indexed and indexed[-1].end > segment.buffer.size:
        raise SpoolDamaged(
            f"{path} has {segment.buffer.size} bytes, but {indexed[-1].end} were synced; restore it from a copy, or "
            "move the directory away when queries have read what can be read, and start anew"
        )
    if sealed_times(indexed, told[len(indexed) * ENTRY_BYTES :]) is not None and _is_sealed(path):
        return segment.part
    groups, times = list(indexed), Times()
    for batch, _ in segment.batches(0, indexed[-1].end if indexed else 0):
        times = times.with_batch(batch)
    for group, batch in whole_groups(segment, indexed[-1].end if indexed else 0):
        groups.append(group)
        times = times.with_batch(batch)
    end = encode_seal(groups, times)
    with path.open("r+b") as file:
        file.truncate(groups[-1].end if groups else segment.first)
        file.seek(0, os.SEEK_END)
        file.write(STREAM_END + end)
        file.flush()
        os.fsync(file.fileno())
    write_durably(index_path, b"".join(map(encode_entry, groups)) + end)
    return segment.part


def _is_sealed(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, len(STREAM_END) + SEAL_BYTES), os.SEEK_END)
        return file.read(len(STREAM_END)) == STREAM_END


def _write_all(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
