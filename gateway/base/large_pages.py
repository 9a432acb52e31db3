"""Large pages of memory for what a process has loaded.

Code and objects lie in pages of 4 KiB all over the heap. After a rest the processor has forgotten where each page is,
and looks that up in tables that have left its caches, too. Of pages of 2 MiB there are few.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

LARGE_BYTES = 2 << 20
MOVED_BYTES_MAX = 64 << 20
"""Bytes that move at most: stops a start that waits for the heap of many sessions, some milliseconds a page."""
_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1


def use_large_pages(maps: Path = Path("/proc/self/smaps")) -> None:
    """Moves the heap to large pages; does nothing where the system has none."""
    try:
        told = maps.read_text()
    except OSError:
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    left = MOVED_BYTES_MAX
    for start, end in filled(told):
        size = min(end - start, left)
        madvise(start, size, _COLLAPSE)
        left -= size


def filled(maps: str) -> Iterator[tuple[int, int]]:
    """Yields the whole large pages (start, end) of each part of the heap of which half is in use: a part that is hardly
    used, such as a thread's stack, would cost memory. `maps`: the text of `/proc/PID/smaps`.
    """
    start = end = size = 0
    for line in maps.splitlines():
        first, *rest = line.split()
        if "-" in first:
            is_heap = rest[0] == "rw-p" and rest[4:] in ([], ["[heap]"])
            low, high = (int(place, 16) for place in first.split("-"))
            start, end = -(-low // LARGE_BYTES) * LARGE_BYTES, high // LARGE_BYTES * LARGE_BYTES
            size = high - low if is_heap else 0
        elif first == "Rss:" and size and start < end and 2 * int(rest[0]) << 10 >= size:
            yield start, end
