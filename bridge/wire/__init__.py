"""The first checks of every party: admission of signed frames, pieces of content, requests, statements, early keys.

Replicas, gateways and ingest jobs share these rules. Imports `contract`, `document`, `base`; never publisher, replica
or reader.
"""

from __future__ import annotations

from bridge.wire.admission import AGE_S, AHEAD_S, BUMP_GRACE_S, TIME_MS_MAX, Admission, Admitted, refused
from bridge.wire.covers import cover_of
from bridge.wire.early import KEYS, EarlyKeys, EarlyPublications, keep_key, keep_publication
from bridge.wire.generations import GENERATION_TOPIC, Generations, OwnLife
from bridge.wire.key_repository import SWEEP_S, Use, carries_key_alone, check_key_topic, key_topic
from bridge.wire.pieces import NO_PART, PROPERTY_PART, check_mode, read
from bridge.wire.plane_vectors import PROPERTY_ROUTE, read_vector
from bridge.wire.pulling import (
    CHAIN_MAX,
    PULL_S,
    PULL_TOPIC,
    REQUESTS_BURST,
    REQUESTS_PER_S,
    Answers,
    Name,
    PullRequest,
    Pulls,
)
from bridge.wire.record_rules import NUL, has_expired, is_of_a_time, is_topic
from bridge.wire.sealings import SEALINGS_MAX, Sealings
from bridge.wire.shown_lists import PROPERTY_SHOWN, ShownList, read_list, shown_list
from bridge.wire.skips import PROPERTY_SKIP, agreed, read_skip
from bridge.wire.statements import (
    CONTROL_ROOT,
    DOMAIN,
    KEYS_TOPIC,
    RENEW_AFTER_S,
    SESSION_S,
    SUBSCRIBE_TOPIC,
    RoutingTable,
    Statement,
    lease_s,
    verify_author,
)

__all__ = [
    "AGE_S",
    "AHEAD_S",
    "BUMP_GRACE_S",
    "CHAIN_MAX",
    "CONTROL_ROOT",
    "DOMAIN",
    "GENERATION_TOPIC",
    "KEYS",
    "KEYS_TOPIC",
    "NO_PART",
    "NUL",
    "PROPERTY_PART",
    "PROPERTY_ROUTE",
    "PROPERTY_SHOWN",
    "PROPERTY_SKIP",
    "PULL_S",
    "PULL_TOPIC",
    "RENEW_AFTER_S",
    "REQUESTS_BURST",
    "REQUESTS_PER_S",
    "SEALINGS_MAX",
    "SESSION_S",
    "SUBSCRIBE_TOPIC",
    "SWEEP_S",
    "TIME_MS_MAX",
    "Admission",
    "Admitted",
    "Answers",
    "EarlyKeys",
    "EarlyPublications",
    "Generations",
    "Name",
    "OwnLife",
    "PullRequest",
    "Pulls",
    "RoutingTable",
    "Sealings",
    "ShownList",
    "Statement",
    "Use",
    "agreed",
    "carries_key_alone",
    "check_key_topic",
    "check_mode",
    "cover_of",
    "has_expired",
    "is_of_a_time",
    "is_topic",
    "keep_key",
    "keep_publication",
    "key_topic",
    "lease_s",
    "read",
    "read_list",
    "read_skip",
    "read_vector",
    "refused",
    "shown_list",
    "verify_author",
]
