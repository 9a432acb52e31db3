"""Sensors of this machine: cores, memory, disks, network, load, temperatures (psutil).

A sweep reads every sensor once. Missing sensors (temperatures in a virtual machine, disks in a container) are left
out, and no value is invented. Names hold no host name.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import psutil

MACHINE_LABEL = "veilmq/demo/machine/"
DEVICES_MAX = 4
"""Disks and interfaces that are read, the busiest: machines have dozens of loop devices and bridges."""
TEMPERATURES_MAX = 16


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a sensor. `kind` and `number` become topic levels."""

    kind: str
    number: int
    sensor: str
    value: float
    unit: str


def machine_id() -> str:
    """Returns eight hex digits that are constant on a machine and do not reveal its name."""
    return hashlib.sha256((MACHINE_LABEL + platform.node()).encode()).hexdigest()[:8]


def sweep() -> list[Reading]:
    """Returns a reading of every sensor."""
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
    counters = _disk_counters()
    for number, name in enumerate(_busiest_disks()):
        if name in counters:
            yield Reading("disk-read", number, f"disk {name} read", counters[name].read_bytes, "B")
            yield Reading("disk-write", number, f"disk {name} written", counters[name].write_bytes, "B")
    yield Reading("disk-free", 0, "disk free", psutil.disk_usage("/").free, "B")


def _disk_counters() -> dict[str, Any]:
    try:
        return psutil.disk_io_counters(perdisk=True) or {}
    except (OSError, RuntimeError, NotImplementedError):
        return {}


@cache
def _busiest_disks() -> list[str]:
    """Returns the busiest disks, chosen once, so that a sensor keeps its number."""
    return _busiest({name: each.read_bytes + each.write_bytes for name, each in _disk_counters().items()})


def _network() -> Iterator[Reading]:
    counters = psutil.net_io_counters(pernic=True) or {}
    for number, name in enumerate(_busiest_interfaces()):
        if name in counters:
            yield Reading("net-sent", number, f"network {name} sent", counters[name].bytes_sent, "B")
            yield Reading("net-received", number, f"network {name} received", counters[name].bytes_recv, "B")


@cache
def _busiest_interfaces() -> list[str]:
    counters = psutil.net_io_counters(pernic=True) or {}
    return _busiest({name: each.bytes_sent + each.bytes_recv for name, each in counters.items()})


def _busiest(moved: Mapping[str, int]) -> list[str]:
    """Returns the names of devices that moved any bytes, the busiest first."""
    return sorted((name for name, count in moved.items() if count), key=lambda name: -moved[name])[:DEVICES_MAX]


def _temperatures() -> Iterator[Reading]:
    read = getattr(psutil, "sensors_temperatures", None)  # Linux and FreeBSD only
    number = 0
    for chip, entries in sorted((read() if read else {}).items()):
        for entry in entries:
            if entry.current is not None and number < TEMPERATURES_MAX:
                yield Reading("temperature", number, f"{chip} {entry.label}".strip(), entry.current, "Cel")
                number += 1
