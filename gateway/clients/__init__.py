"""What the broker knows without deciding: the record of a client, subscriptions, retained messages, bounds, and the
port to the overlay.

Imports `base`, `mqtt5`, `plugins`; no sockets, no decisions.
"""

from __future__ import annotations

from gateway.clients.bounds import Pace, Reached, fits
from gateway.clients.overlay_port import (
    Constraining,
    Done,
    EntityConnected,
    EntityEvent,
    EntityGone,
    EntitySeen,
    LocalBroker,
    Measured,
    Overlay,
    SharedName,
)
from gateway.clients.publications import message_of, publication_of, without_reserved
from gateway.clients.record import (
    INTERNAL,
    Client,
    ClientConnection,
    Deadlines,
    Owed,
    PeerMessage,
    StoredSession,
    Undecided,
)
from gateway.clients.retained import EdgeRetained, RetainedStore, StoreFullError
from gateway.clients.routing import Group, Plan, Router, Target

__all__ = [
    "INTERNAL",
    "Client",
    "ClientConnection",
    "Constraining",
    "Deadlines",
    "Done",
    "EdgeRetained",
    "EntityConnected",
    "EntityEvent",
    "EntityGone",
    "EntitySeen",
    "Group",
    "LocalBroker",
    "Measured",
    "Overlay",
    "Owed",
    "Pace",
    "PeerMessage",
    "Plan",
    "Reached",
    "RetainedStore",
    "Router",
    "SharedName",
    "StoreFullError",
    "StoredSession",
    "Target",
    "Undecided",
    "fits",
    "message_of",
    "publication_of",
    "without_reserved",
]
