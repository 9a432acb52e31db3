"""The list of a receiver's segments, for frequent readers: listing a directory costs time for each name.

A directory records when names last came or went. It is listed again when that time has changed, or is so recent
that a later change may carry an equal time. Where times are in whole seconds, a segment that came within that second
is found by its name, and a removed one by the attempt to read it. Not here: which segments must exist (`view`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from spark_ingest.spool.segments import segment_numbers, segment_path

SETTLED_NS = 50_000_000
"""Clocks of file systems tick a hundred times a second at least, unless they tell whole seconds."""


class SegmentList:
    """The numbers of the segments in a single directory, oldest first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers: Sequence[int] = ()
        self._changed_ns: int | None = None

    def numbers(self, now_ns: int | None = None) -> Sequence[int]:
        """Returns the present numbers, not to be changed. `now_ns`: the wall clock's time, since the UNIX epoch."""
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
