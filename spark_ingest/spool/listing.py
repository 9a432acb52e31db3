"""Which segments a receiver has, for who asks often: listing a directory costs as much as it has names.

A directory tells when names in it came or went last. It is listed again when that time is another one, or so recent
that a change since may have had the same. Where times are told in whole seconds, a segment that came within that second
shows because its name is looked for, and one that went when somebody reads it. Not here: which must be there (`view`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from spark_ingest.spool.segments import segment_numbers, segment_path

SETTLED_NS = 50_000_000
"""Clocks of file systems tick a hundred times a second at least, where they tell more than seconds."""


class SegmentList:
    """Numbers of the segments in one directory, oldest first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers: Sequence[int] = ()
        self._changed_ns: int | None = None

    def numbers(self, now_ns: int | None = None) -> Sequence[int]:
        """As they are now; not to be changed. `now_ns`: the wall clock's time, since the UNIX epoch."""
        try:
            changed_ns = self._directory.stat().st_mtime_ns
        except FileNotFoundError:
            return ()
        newest = self._numbers[-1] if self._numbers else 0
        if changed_ns != self._changed_ns or segment_path(self._directory, newest + 1).exists():
            now_ns = time.time_ns() if now_ns is None else now_ns
            self._numbers = segment_numbers(self._directory)
            self._changed_ns = changed_ns if changed_ns < now_ns - SETTLED_NS else None
        return self._numbers
