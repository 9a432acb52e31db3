"""Row of figures of one minute, its form on disk, and how it is sampled from counters. Pure but for what is passed in.

A row has 64 bytes: the UNIX time, the figures as 32-bit floats, a checksum. A file has one place for each minute of a
day, so that it neither grows nor needs to be rewritten.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

MINUTES_MAX = 1_440  # rows that are kept: a day
FIELDS = (
    "received", "sent", "dropped", "received_bytes", "sent_bytes", "clients", "sessions", "queued", "retained",
    "outbox", "links", "level", "cpu_percent", "memory_mib",
)  # fmt: skip
"""Figures of a row: the first five a second, `level` 0 (well) to 2 (broken), the others at the end of the minute."""
RATES = FIELDS[:5]
_FORM = struct.Struct(f">I{len(FIELDS)}f")
ROW_BYTES = _FORM.size + 4


class Minute(NamedTuple):
    """Figures of one minute. `at`: its end in UNIX seconds; `values`: one for each of FIELDS."""

    at: int
    values: tuple[float, ...]

    @property
    def place(self) -> int:
        """The number of its place in the file."""
        return self.at // 60 % MINUTES_MAX

    def encode(self) -> bytes:
        """Returns the row as it is on disk."""
        content = _FORM.pack(self.at, *self.values)
        return content + zlib.crc32(content).to_bytes(4)

    @classmethod
    def decode(cls, row: bytes) -> Minute | None:
        """Returns the row; None for an empty or damaged place."""
        content = row[: _FORM.size]
        if len(row) != ROW_BYTES or zlib.crc32(content).to_bytes(4) != row[_FORM.size :]:
            return None
        at, *values = _FORM.unpack(content)
        return cls(at, tuple(values)) if at else None


def rows_of(content: bytes, now: float) -> list[Minute]:
    """Returns the rows of a file that are of the last day, in order."""
    found = (Minute.decode(content[at : at + ROW_BYTES]) for at in range(0, len(content), ROW_BYTES))
    return sorted(row for row in found if row is not None and now - 60 * MINUTES_MAX < row.at <= now + 60)


def shown(rows: Iterable[Minute]) -> list[list[float]]:
    """Returns rows for JSON: the time, then the figures, rounded."""
    return [[row.at, *(round(value, 2) for value in row.values)] for row in rows]


class Sampler:
    """Sampler of rows. `look`: returns all FIELDS at this moment; those of RATES count up since the start."""

    def __init__(self, look: Callable[[], Mapping[str, float]], now: float) -> None:
        self._look, self._at = look, now
        self._before = look()

    def row(self, now: float) -> Minute:
        """Returns the row of the time since the last one."""
        seen, seconds = self._look(), max(now - self._at, 0.001)
        values = tuple(
            max(0.0, seen[name] - self._before[name]) / seconds if name in RATES else seen[name] for name in FIELDS
        )
        self._before, self._at = seen, now
        return Minute(int(now), values)
