"""Presence: replicas tell all regions that they live, and to which replicas of neighbouring regions they are linked.

Each replica signs its words, so that nobody can speak for a dead replica. The links of a region are the median of its
replicas' words. Imports `organising`, `topology`, `wire` and below. Not here: what an operator is told about
it (`gateway/health`).
"""

from bridge.presence.heard import LOST_S, Presence, PresenceTable, RegionPresence
from bridge.presence.word import BEAT_S, PRESENCE_TOPIC, PresenceWord

__all__ = ["BEAT_S", "LOST_S", "PRESENCE_TOPIC", "Presence", "PresenceTable", "PresenceWord", "RegionPresence"]
