"""Tracing in a process: a broker that traces, stores of traces, and the client library for programs over paho.

Imports `broker`, `trust` and below.
"""

from __future__ import annotations

from gateway.tracing.assembly import authority_of, owner_of
from gateway.tracing.watched import Watched

__all__ = [
    "Watched",
    "authority_of",
    "owner_of",
]
