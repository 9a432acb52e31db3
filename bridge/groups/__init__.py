"""Shared subscriptions over several gateways: leases, the choice that follows from them, and how leases travel.

Imports `wire`, `topology` and below.
"""

from __future__ import annotations

from bridge.groups.lease_relay import LeaseRelay
from bridge.groups.leases import GROUPS_TOPIC
from bridge.groups.shared_groups import SharedGroups

__all__ = [
    "GROUPS_TOPIC",
    "LeaseRelay",
    "SharedGroups",
]
