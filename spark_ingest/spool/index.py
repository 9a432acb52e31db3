"""Indexes of segments: an entry for each group, and a seal at the end showing any loss.

    entry   16 bytes: end byte (8), rows (4), CRC-32 of both (4)
    seal    32 bytes: rows (8), groups (4), first and last time of reception in us (8 + 8), CRC-32 (4) of all entries
            and of the seal itself; the segment ends with the seal too, behind the end of its Arrow stream

A growing index is believed as far as its entries are whole; a loss behind a damaged entry shows when the segment is
sealed. A finished index is believed if its seal fits; otherwise it is made again from the segment, whose own seal
then
has to fit. So a lost, cut or altered index costs a look at the segment, and missing rows are reported. Version 1
wrote
no seals: there, whole groups behind the last entry are added, and no further check is possible.

Not here: who writes an index (`writer`), places in a spool (`view`).
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_ingest.errors import SpoolDamaged
from spark_ingest.spool.segments import WAY_OUT, SegmentFile, Size, changed_row, open_segment, segment_path

_ENTRY = struct.Struct(">QII")
ENTRY_BYTES = _ENTRY.size
_SEAL = struct.Struct(">QIQQI")
SEAL_BYTES = _SEAL.size
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of an Arrow IPC stream."""
_SEED = zlib.crc32(b"veilmq segment end")
_log = logging.getLogger(__name__)


class SegmentGroup(NamedTuple):
    """An index entry: `rows` rows end at `end`. The first group of a segment begins after the schema."""

    end: int
    rows: int


class Times(NamedTuple):
    """The times of reception of a segment's first and last row, in microseconds; 0, 0 without rows."""

    first_us: int = 0
    last_us: int = 0

    def with_batch(self, batch: Any) -> Times:
        """Returns the times extended by the rows of another group."""
        return self.with_times(batch.column("received_at").cast(pa.int64()))

    def with_times(self, received_us: Any) -> Times:
        """Returns the times extended by an Arrow array of times."""
        least, most = (pc.min_max(received_us)[name].as_py() for name in ("min", "max"))
        return Times(min(self.first_us, least) if self.last_us else least, max(self.last_us, most))


def encode_entry(group: SegmentGroup) -> bytes:
    """Returns the 16 bytes of an entry."""
    body = struct.pack(">QI", group.end, group.rows)
    return body + zlib.crc32(body).to_bytes(4, "big")


def decode_entries(data: bytes, after: int = 0) -> list[SegmentGroup]:
    """Returns entries up to the first that is torn or not beyond its predecessor (`after`: end of the last known)."""
    groups: list[SegmentGroup] = []
    for start in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        end, rows, check = _ENTRY.unpack_from(data, start)
        if zlib.crc32(data[start : start + ENTRY_BYTES - 4]) != check or end <= after:
            break
        groups.append(SegmentGroup(end, rows))
        after = end
    return groups


def encode_seal(groups: Sequence[SegmentGroup], times: Times) -> bytes:
    """Returns the seal of segment and index."""
    entries = b"".join(map(encode_entry, groups))
    body = _SEAL.pack(sum(group.rows for group in groups), len(groups), *times, 0)[:-4]
    return body + zlib.crc32(body, zlib.crc32(entries, _SEED)).to_bytes(4, "big")


def sealed_times(groups: Sequence[SegmentGroup], seal: bytes) -> Times | None:
    """Returns the times in a seal of these groups; None if the bytes are no seal of theirs."""
    if len(seal) < SEAL_BYTES:
        return None
    times = Times(*_SEAL.unpack_from(seal)[2:4])
    return times if seal[:SEAL_BYTES] == encode_seal(groups, times) else None


def whole_groups(segment: SegmentFile, start: int = 0) -> Iterator[tuple[SegmentGroup, Any]]:
    """Yields groups from `start` on with their batches, up to the first torn one: all rows pass their checksum."""
    batches = segment.batches(start, segment.buffer.size)
    while True:
        try:
            batch, end = next(batches)
        except (SpoolDamaged, StopIteration):
            return
        if not batch.num_rows or changed_row(batch) is not None:
            return
        yield SegmentGroup(end, batch.num_rows), batch


def rebuilt(segment: SegmentFile, known: Sequence[SegmentGroup] = ()) -> tuple[list[SegmentGroup], Times | None]:
    """Returns the content of an index, made from its segment: the groups, and the times if the segment's seal fits
    them.
    """
    if segment.format < 2:
        return [*known, *(group for group, _ in whole_groups(segment, known[-1].end if known else 0))], None
    groups, times = [], Times()
    for group, batch in whole_groups(segment):
        groups.append(group)
        times = times.with_batch(batch)
    end = groups[-1].end if groups else segment.first
    tail = segment.buffer.slice(end).to_pybytes()[: len(STREAM_END) + SEAL_BYTES]
    whole = tail == STREAM_END + encode_seal(groups, times)
    return groups, times if whole else None


class SegmentIndex:
    """The index of a segment, which may grow; `groups` reads only entries appended since the last call."""

    def __init__(self, directory: Path, number: int) -> None:
        self._path = segment_path(directory, number, "index")
        self._data = segment_path(directory, number)
        self._groups: list[SegmentGroup] = []
        self._rows = [0]  # of the groups before each, and of all
        self._final = False
        self.times: Times | None = None
        """Of a sealed segment."""

    def groups(self, final: bool = False) -> Sequence[SegmentGroup]:
        """Returns the groups. `final`: a later segment was listed before this call, so that the file cannot grow any
        more.

        Raises SpoolDamaged for a sealed segment that lacks rows or an index, and SpoolGap for a missing segment.
        """
        if self._final:
            return self._groups
        try:
            with self._path.open("rb") as file:
                file.seek(len(self._groups) * ENTRY_BYTES)
                data = file.read()
        except FileNotFoundError:
            if not final:
                return self._groups  # the segment is being made, or was trimmed just now
            data = b""
        fresh = decode_entries(data, self._groups[-1].end if self._groups else 0)
        self._add_groups(fresh)
        rest = data[len(fresh) * ENTRY_BYTES :]
        self.times = sealed_times(self._groups, rest)
        if self.times is not None:
            self._final = True
        elif final or (not fresh and self._looks_sealed()):
            self._rebuild(final)
        return self._groups

    def size_between(self, first: int, end: int) -> Size:
        """Returns the size of the groups numbered `first` to `end` (exclusive), among those that were read."""
        if first >= end:
            return Size(0, 0)
        begin = self._groups[first - 1].end if first else 0
        return Size(self._rows[end] - self._rows[first], self._groups[end - 1].end - begin)

    def salvage(self) -> None:
        """Keeps the whole groups only; all bytes behind them are lost."""
        try:
            groups, self.times = rebuilt(open_segment(str(self._data)))
        except SpoolDamaged:
            groups = []
        self._replace(groups)
        self._final = True

    def _add_groups(self, fresh: Sequence[SegmentGroup]) -> None:
        self._groups += fresh
        self._rows += accumulate((group.rows for group in fresh), initial=self._rows.pop())

    def _replace(self, groups: Sequence[SegmentGroup]) -> None:
        self._groups, self._rows = [], [0]
        self._add_groups(groups)

    def _looks_sealed(self) -> bool:
        """Returns True if the segment ends as a closed one does, behind groups that are not in the index."""
        try:
            size, tail = self._data.stat().st_size, len(STREAM_END) + SEAL_BYTES
            if size < tail or size == (self._groups[-1].end if self._groups else 0):
                return False
            with self._data.open("rb") as file:
                file.seek(size - tail)
                return file.read(len(STREAM_END)) == STREAM_END
        except FileNotFoundError:
            return False

    def _rebuild(self, final: bool) -> None:
        segment = open_segment(str(self._data))
        groups, self.times = rebuilt(segment, self._groups)
        if self.times is None and segment.format > 1:
            if not final:
                return
            known = sum(group.rows for group in groups)
            raise SpoolDamaged(
                f"{self._data} and its index are damaged: {known} rows can be read and the rest cannot; {WAY_OUT}"
            )
        if segment.format > 1:
            _log.warning("veilmq: %s is missing or damaged; read from the segment itself, which is whole", self._path)
        self._replace(groups)
        self._final = final or self.times is not None
