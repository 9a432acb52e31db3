"""Entities knowing VeilMQ, on the broker's side: registrations, pings, signed traces, reports (B1-B9).

Imports `contract`, `document`, `base`; knows nothing of secret forwarding, nor of the followers of entities
(`tracking`).
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
from bridge.traces.events import (
    AskThere,
    ClientGone,
    Interested,
    Registered,
    Registering,
    Relayed,
    Resumed,
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
from bridge.traces.presets import PRESETS, Preset, within
from bridge.traces.remembered import RememberedEntity
from bridge.traces.reporting import ReportEffect, Reporter, TraceReport
from bridge.traces.telling import Voice
from bridge.traces.tracer import Tracer

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
    "Availability",
    "AvailabilityEffect",
    "AvailabilityEvent",
    "ClientGone",
    "Complain",
    "EntityConnected",
    "EntityEvent",
    "EntityGone",
    "EntitySeen",
    "Fleet",
    "Interest",
    "Interested",
    "Offenders",
    "Preset",
    "Registered",
    "Registering",
    "Relayed",
    "RememberedEntity",
    "ReportEffect",
    "Reporter",
    "Resumed",
    "SendAway",
    "Spoke",
    "Stood",
    "Summary",
    "TraceKind",
    "TraceReport",
    "Tracer",
    "TracingEffect",
    "TracingEvent",
    "Voice",
    "advertisement_topic",
    "announced_before",
    "answers_to",
    "entity_level",
    "group_of",
    "interest_of",
    "within",
]
