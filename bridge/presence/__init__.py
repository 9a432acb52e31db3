"""Presence: replicas tell all regions that they live, and to which replicas of neighbouring regions they are linked.

Each word is signed by its replica, so that nobody can speak for a replica that is gone; a region's links are the median
of what its replicas say. Imports `organising`, `topology`, `wire` and below. Not here: what an operator is told about
it (`gateway/health`).
"""

from bridge.presence.heard import LOST_S, Presence, PresenceTable, RegionPresence
from bridge.presence.word import BEAT_S, PRESENCE_TOPIC, PresenceWord

__all__ = ["BEAT_S", "LOST_S", "PRESENCE_TOPIC", "Presence", "PresenceTable", "PresenceWord", "RegionPresence"]
