"""Where a broker that traces is reached: an address, or several processes of it sharing its entities by name.

A process fills a single core. `gate.example.net:1883-1886` are four of them, with an identity and a data directory
each: an entity is at home in the process that its name chooses, for each client by itself and the same everywhere, so
that no process asks another. A tracker connects to all of them. If a process is added, few entities move: each goes to
the process with the highest digest of both names (D. Thaler, C. Ravishankar, Using name-based mappings to increase hit
rates (1998)). Not here: connections (`client`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

from gateway.trust import TrustError

PROCESSES_MAX = 64  # ports of one range
Address: TypeAlias = tuple[str, int]
Hosts: TypeAlias = str | Sequence[str | Address]


def processes_of(hosts: Hosts, port: int) -> list[list[Address]]:
    """For each broker the addresses of its processes; `port` where none is named. Raises TrustError."""
    if isinstance(hosts, str):
        return [_named(hosts, port) if _has_range(hosts) else [(hosts, port)]]
    return [[each] if isinstance(each, tuple) else _named(each, port) for each in hosts]


def home_of(name: str, processes: Sequence[Address]) -> Address:
    """Returns the process of a broker that traces the entity of this name. Chosen by the port, for a host has many
    names.
    """
    return max(processes, key=lambda each: hashlib.sha256(f"{each[1]} {name}".encode()).digest())


def addresses(text: str) -> list[Address]:
    """Host and port of `HOST:PORT`, all of `HOST:FIRST-LAST`. Raises TrustError."""
    host, _, ports = text.rpartition(":")
    first, dash, last = ports.partition("-")
    numbers = [int(each) if each.isdigit() and len(each) < 6 else 0 for each in (first, last if dash else first)]
    if not host or not all(0 < each < 65_536 for each in numbers):
        raise TrustError(f"{text}: is no HOST:PORT; write it like 127.0.0.1:1883, or 127.0.0.1:1883-1886 for processes")
    if not 0 <= numbers[1] - numbers[0] < PROCESSES_MAX:
        raise TrustError(f"{text}: is no range of at most {PROCESSES_MAX} ports; write the lower one first")
    return [(host.strip("[]"), each) for each in range(numbers[0], numbers[1] + 1)]


def _named(text: str, port: int) -> list[Address]:
    return [(text.strip("[]"), port)] if ":" not in text or text.endswith("]") else addresses(text)


def _has_range(text: str) -> bool:
    host, colon, ports = text.rpartition(":")
    return bool(colon and host) and "-" in ports and ports.replace("-", "").isdigit()
