"""Figures for operators: totals, `$SYS` topics, the Prometheus endpoint.

Imports `clients` and below; is handed the figures that it shows.
"""

from __future__ import annotations

from gateway.operation.operation import Operation
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.traffic import Traffic, add_up

__all__ = [
    "BrokerSnapshot",
    "Operation",
    "Traffic",
    "add_up",
]
