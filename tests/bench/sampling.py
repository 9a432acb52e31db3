"""Where a process of ours spends its time: the top of its event loop's stack, some thousand times a second.

`begin` is called in the process, before the product starts; SIGUSR1 starts the samples, SIGUSR2 writes them to
`DIRECTORY/PID.json` and ends them. Other threads are not seen. A sample that falls into C counts for the next function
in Python, or for the loop itself (`Runner.run`): what the kernel does to read a socket shows as that, or as the
function that gets the bytes (`SSLObject.read`). One that falls into a wait would count for what ends it, a timer as a
rule: only those are counted before which the thread computed most of the time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

EVERY_S = 0.0007


def begin(directory: str) -> None:
    """Be ready to take samples in this process."""
    found = Counter[str]()
    last = (0.0, 0.0)  # wall clock and the thread's, at the last sample

    def sample(_: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, (time.perf_counter(), time.thread_time())
        computed = last[1] - before[1] > (last[0] - before[0]) / 2
        if frame is not None and computed:
            found[_name(frame.f_code)] += 1

    def start(*_: object) -> None:
        nonlocal last
        found.clear()
        last = time.perf_counter(), time.thread_time()
        signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)

    def write(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(directory, found)

    signal.signal(signal.SIGALRM, sample)
    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, write)


def count(directory: str) -> None:
    """Is ready to count calls of Python functions in this process, by function; the signals are those of `begin`."""
    found = Counter[CodeType]()

    def called(frame: FrameType, what: str, _: object) -> None:
        if what == "call":
            found[frame.f_code] += 1

    def start(*_: object) -> None:
        found.clear()
        sys.setprofile(called)

    def write(*_: object) -> None:
        sys.setprofile(None)
        names = Counter[str]()
        for code, number in found.items():
            names[_name(code)] += number
        _write(directory, names)

    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, write)


def _write(directory: str, found: Counter[str]) -> None:
    path = Path(directory, f"{os.getpid()}.json")
    path.with_suffix(".new").write_text(json.dumps(found))
    path.with_suffix(".new").replace(path)


def _name(code: CodeType) -> str:
    path = code.co_filename.rpartition("site-packages/")[2]
    for package in ("keys", "bridge", "gateway"):
        path = path[path.rfind(f"/{package}/") + 1 :] if f"/{package}/" in path else path
    return f"{'/'.join(path.split('/')[-3:])}:{code.co_qualname}"


def shares(path: Path, number: int) -> list[tuple[str, float]]:
    """The functions with the largest shares of the samples in a file that `begin` wrote, and these shares."""
    found: dict[str, int] = json.loads(path.read_text())
    total = sum(found.values()) or 1
    largest = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:number]
    return [(name, count / total) for name, count in largest]
