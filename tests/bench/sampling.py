"""Where a process of ours spends its time: the top of its event loop's stack, some thousand times a second.

`begin` is called in the process, before the product starts; SIGUSR1 starts the samples, SIGUSR2 writes them to
`DIRECTORY/PID.json` and ends them. A sample weighs as much as its thread computed since the one before, so that waiting
counts for nobody; other threads are not seen. A sample that falls into C counts for the next function in Python: what
the kernel and the loop do to read a socket shows as the function that gets the bytes (`SSLObject.read`).
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import FrameType

EVERY_S = 0.0007
WAITS = "Runner.run"


def begin(directory: str) -> None:
    """Be ready to take samples in this process."""
    found = dict[str, float]()
    computed_s = 0.0

    def sample(_: int, frame: FrameType | None) -> None:
        nonlocal computed_s
        before, computed_s = computed_s, time.thread_time()
        if frame is not None and frame.f_code.co_qualname != WAITS:
            name = _name(frame)
            found[name] = found.get(name, 0.0) + computed_s - before

    def start(*_: object) -> None:
        nonlocal computed_s
        found.clear()
        computed_s = time.thread_time()
        signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)

    def write(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        path = Path(directory, f"{os.getpid()}.json")
        path.with_suffix(".new").write_text(json.dumps(found))
        path.with_suffix(".new").replace(path)

    signal.signal(signal.SIGALRM, sample)
    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, write)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    path = code.co_filename.rpartition("site-packages/")[2]
    for package in ("keys", "bridge", "gateway"):
        path = path[path.rfind(f"/{package}/") + 1 :] if f"/{package}/" in path else path
    return f"{'/'.join(path.split('/')[-3:])}:{code.co_qualname}"


def shares(path: Path, number: int) -> list[tuple[str, float]]:
    """The functions with the largest shares of the samples in a file that `begin` wrote, and these shares."""
    found: dict[str, float] = json.loads(path.read_text())
    total = sum(found.values()) or 1
    largest = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:number]
    return [(name, count / total) for name, count in largest]
