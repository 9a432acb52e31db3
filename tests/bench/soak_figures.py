"""Figures of one process in a soak, and bounds of their growth from a life's first sample to its last."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

COUNTS_S = 20.0
"""A stopped or busy process answers SIGUSR1 late."""

BOUNDS: dict[str, tuple[float, float]] = {
    "memory_mb": (1.25, 16.0),
    "files": (1.0, 32),
    "objects": (1.25, 50_000),
    "tasks": (1.0, 64),
    "threads": (1.0, 8),
    "disk_mb": (1.25, 32.0),
    "cpu_us_a_message": (2.0, 500.0),
}
"""Name of a figure -> (factor, addend): the last may be at most first * factor + addend."""


@dataclass(frozen=True)
class Sample:
    """A process at one moment. `cpu_us_a_message`: processor time since the sample before, by deliveries since."""

    memory_mb: float
    files: int
    objects: int
    tasks: int
    threads: int
    disk_mb: float
    cpu_us_a_message: float
    cpu_s: float


def disk_mb(folder: Path) -> float:
    """Returns the size of all files below `folder` in MB; a file that goes meanwhile counts nothing."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            path = Path(at) / name
            total += path.stat().st_size if path.exists() else 0
    return total / 1e6


def counts(pid: int, file: Path) -> dict[str, int]:
    """Returns what `soak_member` counts now. Raises TimeoutError for a process that does not answer."""
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + COUNTS_S
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{file.name}: the process does not answer SIGUSR1 within {COUNTS_S:g} s")
        time.sleep(0.05)
    found: dict[str, int] = json.loads(file.read_text())
    return found


def sample(pid: int, directory: Path, name: str, before: Sample | None, messages: int) -> Sample:
    """Returns the figures of the member `name`. `messages`: deliveries since the sample `before`."""
    process = psutil.Process(pid)
    cpu_s = sum(process.cpu_times()[:2])
    found = counts(pid, directory / f"{name}.yaml.counts")
    spent_s = cpu_s - before.cpu_s if before else 0.0
    return Sample(
        process.memory_info().rss / 1e6,
        process.num_fds(),
        found["objects"],
        found["tasks"],
        process.num_threads(),
        disk_mb(directory / f"data-{name}"),
        1e6 * spent_s / messages if messages else 0.0,
        cpu_s,
    )


def grown(first: Sample, last: Sample) -> Iterator[str]:
    """Yields one line for each figure that grew beyond its bound. Time a message needs a first sample that has it."""
    for name, (factor, addend) in BOUNDS.items():
        was, now = getattr(first, name), getattr(last, name)
        if name == "cpu_us_a_message" and not was:
            continue
        if now > was * factor + addend:
            yield f"{name} grew from {was:,.1f} to {now:,.1f}, beyond {was * factor + addend:,.1f}"
