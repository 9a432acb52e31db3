"""What the owner signed: policy and scopes, members and regions, views and their succession, names with a meaning.

Questions about the overlay in force are answered here; nothing here changes by itself or sends anything. Imports
`base`, nothing that moves.
"""

from __future__ import annotations

from bridge.document.batch_topics import BATCH_ROOT, batch_number, batch_topic, is_batch_topic
from bridge.document.constrained import BROKER, TRACES, Actions, Constrained, Distribution
from bridge.document.overlay import (
    DEPTH_MAX,
    HOSTED_PROPERTY_CHARS,
    SHARES_PER_KEY_MAX,
    VIEW_GRACE_S,
    Member,
    Overlay,
    OverlayError,
    RegionView,
)
from bridge.document.own_topics import OwnTopics
from bridge.document.policy import (
    KEY_SERVERS_MAX,
    REFRESH,
    REFRESH_BYTES_MAX,
    REFRESH_MESSAGES_MAX,
    REFRESH_SECONDS_MAX,
    Issuer,
    Policy,
    Refresh,
    Scope,
)
from bridge.document.record_rights import RecordRights
from bridge.document.scope_secret import ScopeSecret
from bridge.document.shown import BORDERS_MAX, SHOWN_MAX, ShownAttribute, are_borders

__all__ = [
    "BATCH_ROOT",
    "BORDERS_MAX",
    "BROKER",
    "DEPTH_MAX",
    "HOSTED_PROPERTY_CHARS",
    "KEY_SERVERS_MAX",
    "REFRESH",
    "REFRESH_BYTES_MAX",
    "REFRESH_MESSAGES_MAX",
    "REFRESH_SECONDS_MAX",
    "SHARES_PER_KEY_MAX",
    "SHOWN_MAX",
    "TRACES",
    "VIEW_GRACE_S",
    "Actions",
    "Constrained",
    "Distribution",
    "Issuer",
    "Member",
    "Overlay",
    "OverlayError",
    "OwnTopics",
    "Policy",
    "RecordRights",
    "Refresh",
    "RegionView",
    "Scope",
    "ScopeSecret",
    "ShownAttribute",
    "are_borders",
    "batch_number",
    "batch_topic",
    "is_batch_topic",
]
