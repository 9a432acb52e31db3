"""What people who run a broker look at: totals, `$SYS` topics, the Prometheus endpoint.

Imports `clients` and below; is handed what it shows.
"""

from __future__ import annotations

from gateway.operation.operation import Operation
from gateway.operation.snapshot import Snapshot
from gateway.operation.traffic import Traffic, add_up

__all__ = [
    "Operation",
    "Snapshot",
    "Traffic",
    "add_up",
]
