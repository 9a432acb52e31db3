"""A node's membership in the overlay: newer versions, endorsements of views, guarded links, epoch keys.

Imports `wire` and below; the roles in `node` build on this room.
"""

from __future__ import annotations

from bridge.membership.adopting import OVERLAY_TOPIC
from bridge.membership.endorsing import VIEWS_TOPIC
from bridge.membership.key_service import GRANT_TOPIC, KeyClient, KeyServerNode, OverlayDirectory, answer, handed_over
from bridge.membership.node import Node
from bridge.membership.swapping import ENDORSE_S, SWAPS_TOPIC

__all__ = [
    "ENDORSE_S",
    "GRANT_TOPIC",
    "OVERLAY_TOPIC",
    "SWAPS_TOPIC",
    "VIEWS_TOPIC",
    "KeyClient",
    "KeyServerNode",
    "Node",
    "OverlayDirectory",
    "answer",
    "handed_over",
]
