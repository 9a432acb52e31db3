"""The owner's signed document: policy and scopes, members and regions, views and their succession, reserved names.

Questions about the overlay in force are answered here; nothing here changes by itself or sends anything. Imports
`base` only.
"""

from __future__ import annotations

from bridge.document.arrangement import JUDGED_INTERVALS, Arrangement
from bridge.document.batching import BATCH_MOST, BATCHING, Batching
from bridge.document.constrained import BROKER, TRACES, Actions, Constrained, Distribution
from bridge.document.evidence import (
    Contradiction,
    Lie,
    NotProvedError,
    ProvenLie,
    SignedStatement,
    of_overlays,
    of_swaps,
)
from bridge.document.history import DAY_S, HISTORY_LEAST, HISTORY_MOST, History
from bridge.document.member_budgets import BUDGETS_MOST, MEMBER_BUDGETS, MemberBudgets
from bridge.document.organise import (
    DWELL_MOST_S,
    EVEN_PERCENT,
    HOPS_MOST,
    INTERVAL_MOST_S,
    ORGANISER_GRACE_MOST_S,
    Organising,
)
from bridge.document.overlay import (
    HOSTED_PROPERTY_CHARS,
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
    Protection,
    Refresh,
    Scope,
)
from bridge.document.record_rights import RecordRights
from bridge.document.scope_secret import ScopeSecret
from bridge.document.shown import BORDERS_MAX, SHOWN_MAX, ShownAttribute, are_borders
from bridge.document.swaps import ORGANISERS, OWNER_STEPS, SignedSwap, SwapEndorsement, SwapNews
from bridge.document.tree_checks import DEPTH_MAX, SHARES_PER_KEY_MAX, KeyLoad, key_load
from bridge.document.trees import NUMBERS, TREE_GRACE_S, TREE_SETTLE_S, Tree, TreeChange, Trees
from bridge.document.wire_topics import (
    WireTopic,
    batch_topic,
    is_retained_topic,
    read_wire_topic,
    retained_filter,
    retained_topic,
    slot_of,
)

__all__ = [
    "BATCHING",
    "BATCH_MOST",
    "BORDERS_MAX",
    "BROKER",
    "BUDGETS_MOST",
    "DAY_S",
    "DEPTH_MAX",
    "DWELL_MOST_S",
    "EVEN_PERCENT",
    "HISTORY_LEAST",
    "HISTORY_MOST",
    "HOPS_MOST",
    "HOSTED_PROPERTY_CHARS",
    "INTERVAL_MOST_S",
    "JUDGED_INTERVALS",
    "KEY_SERVERS_MAX",
    "MEMBER_BUDGETS",
    "NUMBERS",
    "ORGANISERS",
    "ORGANISER_GRACE_MOST_S",
    "OWNER_STEPS",
    "REFRESH",
    "REFRESH_BYTES_MAX",
    "REFRESH_MESSAGES_MAX",
    "REFRESH_SECONDS_MAX",
    "SHARES_PER_KEY_MAX",
    "SHOWN_MAX",
    "TRACES",
    "TREE_GRACE_S",
    "TREE_SETTLE_S",
    "VIEW_GRACE_S",
    "Actions",
    "Arrangement",
    "Batching",
    "Constrained",
    "Contradiction",
    "Distribution",
    "History",
    "Issuer",
    "KeyLoad",
    "Lie",
    "Member",
    "MemberBudgets",
    "NotProvedError",
    "Organising",
    "Overlay",
    "OverlayError",
    "OwnTopics",
    "Policy",
    "Protection",
    "ProvenLie",
    "RecordRights",
    "Refresh",
    "RegionView",
    "Scope",
    "ScopeSecret",
    "ShownAttribute",
    "SignedStatement",
    "SignedSwap",
    "SwapEndorsement",
    "SwapNews",
    "Tree",
    "TreeChange",
    "Trees",
    "WireTopic",
    "are_borders",
    "batch_topic",
    "is_retained_topic",
    "key_load",
    "of_overlays",
    "of_swaps",
    "read_wire_topic",
    "retained_filter",
    "retained_topic",
    "slot_of",
]
