"""A clock for real processes that a test puts forward: all of them read how far from one file, at once."""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

AHEAD = struct.Struct("d")
NAME = "clock"
VEILMQ_AHEAD = ("-m", "tests.gateway.injected_clock", "broker")
"""What runs a member in the directory of the clock: no fork of a process that has the time already."""


def inject(path: str) -> None:
    """Lets the clock of this process go ahead of the machine's by what the file says; before anything else is imported
    that has the time."""
    with Path(path).open("rb") as file:
        ahead = mmap.mmap(file.fileno(), AHEAD.size, access=mmap.ACCESS_READ)
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + AHEAD.unpack_from(ahead)[0]
    time.time_ns = lambda: real_ns() + int(AHEAD.unpack_from(ahead)[0] * 1e9)


class InjectedClock:
    """The file in a directory, and how far it is ahead."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.ahead_s = 0.0
        self._path.write_bytes(AHEAD.pack(0.0))

    def forward(self, seconds: float) -> None:
        """Puts all clocks forward."""
        self.ahead_s += seconds
        with self._path.open("r+b") as file:
            file.write(AHEAD.pack(self.ahead_s))


if __name__ == "__main__":
    inject(NAME)
    from gateway.cli import main

    main()
