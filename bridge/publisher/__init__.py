"""The publisher side at a gateway: from committed outbox entries to sealed publications at every replica of its
region.

Data keys, sealing, windows towards replicas, repair, own retained publications. Imports `wire` and below; never
replica or reader.
"""

from __future__ import annotations

from bridge.publisher.cutting import BatchLimits, Cut, Row, ScopeChain
from bridge.publisher.numbers import Numbers
from bridge.publisher.publisher import Publisher
from bridge.publisher.windows import AHEAD_MAX, WINDOW_MAX

__all__ = [
    "AHEAD_MAX",
    "WINDOW_MAX",
    "BatchLimits",
    "Cut",
    "Numbers",
    "Publisher",
    "Row",
    "ScopeChain",
]
