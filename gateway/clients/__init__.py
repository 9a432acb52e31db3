"""Data of the broker about its clients, without decisions: the record of a client, subscriptions, retained messages,
bounds, and the port to the overlay.

Imports `base`, `mqtt5`, `plugins`; no sockets, no decisions.
"""

from __future__ import annotations

from gateway.clients.bounds import Pace, Reached, fits
from gateway.clients.content_filters import (
    all_predicates,
    inner_filter,
    predicate_of,
    route_name,
    split_expression,
    wants,
    with_predicates,
)
from gateway.clients.overlay_port import (
    Circling,
    Constraining,
    Done,
    EntityConnected,
    EntityEvent,
    EntityGone,
    EntitySeen,
    LocalBroker,
    LocalGroup,
    Measured,
    OverlayPort,
    Past,
    PeerRefusal,
    SharedName,
)
from gateway.clients.publications import message_of, publication_of, publications_of, without_reserved
from gateway.clients.record import (
    FINAL_REFUSALS,
    INTERNAL,
    Client,
    ClientConnection,
    Deadlines,
    OwedAck,
    PeerMessage,
    StoredSession,
    Undecided,
)
from gateway.clients.retained import EdgeRetained, RetainedStore, StoreFullError
from gateway.clients.routing import DeliveryPlan, Router, SharedGroup, Target
from gateway.clients.since import since_ms, with_since

__all__ = [
    "FINAL_REFUSALS",
    "INTERNAL",
    "Circling",
    "Client",
    "ClientConnection",
    "Constraining",
    "Deadlines",
    "DeliveryPlan",
    "Done",
    "EdgeRetained",
    "EntityConnected",
    "EntityEvent",
    "EntityGone",
    "EntitySeen",
    "LocalBroker",
    "LocalGroup",
    "Measured",
    "OverlayPort",
    "OwedAck",
    "Pace",
    "Past",
    "PeerMessage",
    "PeerRefusal",
    "Reached",
    "RetainedStore",
    "Router",
    "SharedGroup",
    "SharedName",
    "StoreFullError",
    "StoredSession",
    "Target",
    "Undecided",
    "all_predicates",
    "fits",
    "inner_filter",
    "message_of",
    "predicate_of",
    "publication_of",
    "publications_of",
    "route_name",
    "since_ms",
    "split_expression",
    "wants",
    "with_predicates",
    "with_since",
    "without_reserved",
]
