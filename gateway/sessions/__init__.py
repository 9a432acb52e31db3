"""Durable state of local clients, which must survive a restart: sessions, queues, retained messages, in SQLite.

Imports `clients`, `outbox` and below; never the broker using it.
"""

from __future__ import annotations

from gateway.sessions.batch import HeldMessage
from gateway.sessions.bridge_sessions import forget_bridge, waiting_for_bridges
from gateway.sessions.database import IN_FLIGHT, RELEASED, Changes, Content, SessionDatabase
from gateway.sessions.rows import Row, groups_of, kept_of, message_of, queued_of, subscription_of
from gateway.sessions.store import SessionRecord, SessionStore, received_of

__all__ = [
    "IN_FLIGHT",
    "RELEASED",
    "Changes",
    "Content",
    "HeldMessage",
    "Row",
    "SessionDatabase",
    "SessionRecord",
    "SessionStore",
    "forget_bridge",
    "groups_of",
    "kept_of",
    "message_of",
    "queued_of",
    "received_of",
    "subscription_of",
    "waiting_for_bridges",
]
