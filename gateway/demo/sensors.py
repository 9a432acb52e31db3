"""What this machine measures of itself: cores, memory, disks, network, load, temperatures (psutil).

A sweep reads everything once. What a machine does not have (temperatures in a virtual machine, disks in a
container) is left out, and nothing is made up. Names hold no host name.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

MACHINE_LABEL = "veilmq/demo/machine/"


@dataclass(frozen=True, slots=True)
class Reading:
    """One value. `kind` and `number` become topic levels."""

    kind: str
    number: int
    sensor: str
    value: float
    unit: str


def machine_id() -> str:
    """Eight hex digits that stay the same on one machine and do not tell its name."""
    return hashlib.sha256((MACHINE_LABEL + platform.node()).encode()).hexdigest()[:8]


def sweep() -> list[Reading]:
    """Every sensor once."""
    return [*_cores(), *_memory(), *_load(), *_disks(), *_network(), *_temperatures()]


def _cores() -> Iterator[Reading]:
    for number, percent in enumerate(psutil.cpu_percent(percpu=True)):
        yield Reading("cpu", number, f"core {number} busy", percent, "%")
    for number, times in enumerate(psutil.cpu_times(percpu=True)):
        yield Reading("cpu-user", number, f"core {number} user time", times.user, "s")
        yield Reading("cpu-system", number, f"core {number} system time", times.system, "s")


def _memory() -> Iterator[Reading]:
    memory = psutil.virtual_memory()
    yield Reading("memory", 0, "memory available", memory.available, "B")
    yield Reading("memory", 1, "memory used", memory.used, "B")
    yield Reading("memory", 2, "memory in use", memory.percent, "%")
    yield Reading("swap", 0, "swap used", psutil.swap_memory().used, "B")


def _load() -> Iterator[Reading]:
    for number, (minutes, load) in enumerate(zip((1, 5, 15), psutil.getloadavg(), strict=True)):
        yield Reading("load", number, f"load over {minutes} min", load, "1")
    yield Reading("processes", 0, "processes", len(psutil.pids()), "1")


def _disks() -> Iterator[Reading]:
    try:
        disks: dict[str, Any] = psutil.disk_io_counters(perdisk=True) or {}
    except (OSError, RuntimeError, NotImplementedError):
        disks = {}
    for number, (name, counters) in enumerate(sorted(disks.items())[:4]):
        yield Reading("disk-read", number, f"disk {name} read", counters.read_bytes, "B")
        yield Reading("disk-write", number, f"disk {name} written", counters.write_bytes, "B")
    usage = psutil.disk_usage("/")
    yield Reading("disk-free", 0, "disk free", usage.free, "B")


def _network() -> Iterator[Reading]:
    interfaces = psutil.net_io_counters(pernic=True) or {}
    for number, (name, counters) in enumerate(sorted(interfaces.items())[:4]):
        yield Reading("net-sent", number, f"network {name} sent", counters.bytes_sent, "B")
        yield Reading("net-received", number, f"network {name} received", counters.bytes_recv, "B")


def _temperatures() -> Iterator[Reading]:
    read = getattr(psutil, "sensors_temperatures", None)  # Linux and FreeBSD only
    number = 0
    for chip, entries in sorted((read() if read else {}).items()):
        for entry in entries:
            if entry.current is not None and number < 16:
                yield Reading("temperature", number, f"{chip} {entry.label}".strip(), entry.current, "Cel")
                number += 1
