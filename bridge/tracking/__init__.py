"""Discovery and following of entities: discovery nodes, an entity's own side, trackers and witnesses (B1-B9).

Imports `traces`, which holds the broker's side and the words of both; never the reverse.
"""

from __future__ import annotations

from bridge.tracking.discovery import Asked, DiscoveryEffect, DiscoveryNode, Heard, ShareAdvertisement, entity_of
from bridge.tracking.entity import KeepEntity, Leave, Listen, Told, Wishes
from bridge.tracking.following import Follow, Observed, Unfollow
from bridge.tracking.patterns import is_pattern, matches
from bridge.tracking.registrations import RegistrationQueue
from bridge.tracking.witnessed import WitnessedEntity
from bridge.tracking.witnessing import Opinion

__all__ = [
    "Asked",
    "DiscoveryEffect",
    "DiscoveryNode",
    "Follow",
    "Heard",
    "KeepEntity",
    "Leave",
    "Listen",
    "Observed",
    "Opinion",
    "RegistrationQueue",
    "ShareAdvertisement",
    "Told",
    "Unfollow",
    "Wishes",
    "WitnessedEntity",
    "entity_of",
    "is_pattern",
    "matches",
]
