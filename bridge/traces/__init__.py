"""Entities that know VeilMQ: topics of their own, registrations, pings, signed traces, trackers and witnesses (B1-B9).

Imports `contract`, `document`, `base`; knows nothing of secret forwarding.
"""

from __future__ import annotations

from bridge.traces.availability import (
    Announce,
    Availability,
    AvailabilityEffect,
    AvailabilityEvent,
    EntityConnected,
    EntityEvent,
    EntityGone,
    EntitySeen,
    announced_before,
    entity_level,
)
from bridge.traces.discovery import Asked, DiscoveryEffect, DiscoveryNode, Heard, ShareAdvertisement, entity_of
from bridge.traces.entity import KeepEntity, Leave, Listen, Told, Wishes
from bridge.traces.events import (
    AskThere,
    ClientGone,
    Interested,
    Registered,
    Registering,
    Relayed,
    Spoke,
    TracingEffect,
    TracingEvent,
)
from bridge.traces.fleet import Alert, Fleet, Stood, Summary, group_of
from bridge.traces.kinds import (
    ADVERTISEMENTS,
    ADVERTISEMENTS_FILTER,
    ANSWERS_FILTER,
    CREATION_TOPIC,
    DISCOVERY_TOPIC,
    EVERYTHING,
    GAUGE_EVERY_S,
    REGISTRATION_TOPIC,
    STATES,
    Interest,
    TraceKind,
    advertisement_topic,
    answers_to,
    interest_of,
)
from bridge.traces.offenders import Complain, Offenders, SendAway
from bridge.traces.patterns import is_pattern, matches
from bridge.traces.pings import PRESETS, Preset, within
from bridge.traces.registrations import RegistrationQueue
from bridge.traces.remembered import RememberedEntity
from bridge.traces.reporting import ReportEffect, Reporter, TraceReport
from bridge.traces.telling import Voice
from bridge.traces.tracer import Tracer
from bridge.traces.tracker import Follow, Observed, Unfollow
from bridge.traces.witnessed import WitnessedEntity
from bridge.traces.witnessing import Opinion

__all__ = [
    "ADVERTISEMENTS",
    "ADVERTISEMENTS_FILTER",
    "ANSWERS_FILTER",
    "CREATION_TOPIC",
    "DISCOVERY_TOPIC",
    "EVERYTHING",
    "GAUGE_EVERY_S",
    "PRESETS",
    "REGISTRATION_TOPIC",
    "STATES",
    "Alert",
    "Announce",
    "AskThere",
    "Asked",
    "Availability",
    "AvailabilityEffect",
    "AvailabilityEvent",
    "ClientGone",
    "Complain",
    "DiscoveryEffect",
    "DiscoveryNode",
    "EntityConnected",
    "EntityEvent",
    "EntityGone",
    "EntitySeen",
    "Fleet",
    "Follow",
    "Heard",
    "Interest",
    "Interested",
    "KeepEntity",
    "Leave",
    "Listen",
    "Observed",
    "Offenders",
    "Opinion",
    "Preset",
    "Registered",
    "Registering",
    "RegistrationQueue",
    "Relayed",
    "RememberedEntity",
    "ReportEffect",
    "Reporter",
    "SendAway",
    "ShareAdvertisement",
    "Spoke",
    "Stood",
    "Summary",
    "Told",
    "TraceKind",
    "TraceReport",
    "Tracer",
    "TracingEffect",
    "TracingEvent",
    "Unfollow",
    "Voice",
    "Wishes",
    "WitnessedEntity",
    "advertisement_topic",
    "announced_before",
    "answers_to",
    "entity_level",
    "entity_of",
    "group_of",
    "interest_of",
    "is_pattern",
    "matches",
    "within",
]
