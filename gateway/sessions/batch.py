"""Batches of changes to sessions that are written together, as the newest state of each row. Data; no I/O, no
decisions.

`store.SessionStore` fills one `Batch` while another is being written, and tells the waiting callers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.clients import Client, ClientConnection, OwedAck, StoredSession
from gateway.mqtt5.delivery import Queued
from gateway.mqtt5.message import Message
from gateway.mqtt5.session import SessionSubscription
from gateway.sessions.database import Changes
from gateway.sessions.rows import delivery_row, message_row, subscription_row

_Delivery: TypeAlias = "tuple[StoredSession, Queued | None, int, int]"  # packet identifier, stage


class HeldMessage:
    """Message that is stored for `references` deliveries. `debt`: the PUBACK waiting for nothing else."""

    __slots__ = ("debt", "id", "references")

    def __init__(self, id_: int, references: int = 0) -> None:
        self.id, self.references = id_, references
        self.debt: Debt | None = None


@dataclass(slots=True, eq=False)
class Debt:
    """Acknowledgement that waits. `flow`: the QoS 2 flow of the publisher that is stored with it, or 0."""

    client: Client
    owed: OwedAck
    message: Message
    flow: int
    is_open: bool = True

    def settle_debt(self, code: int) -> None:
        self.is_open = False
        self.client.decide(self.owed, code)


PATIENT_S = 0.5
"""Seconds until changes are written for which patient callers wait. A reader that acknowledges each message by itself
costs itself a write and each replica a wake-up a message; after `kill -9` replicas send again what came in this time.
"""
PATIENT_MAX = 24
"""Patient waiters of a batch that is written at once: eight for each of three replicas, which may have so few messages
under way to a member (`limits.member_in_flight`) that they stand still until then.
"""


@dataclass(slots=True)
class Batch:
    """Changes that are written together. Ids from `first` on were never written: they can be dropped again."""

    number: int
    first: int
    sessions: dict[int, StoredSession | None] = field(default_factory=dict)
    subscriptions: dict[tuple[int, str], SessionSubscription | None] = field(default_factory=dict)
    messages: dict[int, Message] = field(default_factory=dict)
    deliveries: dict[int, _Delivery] = field(default_factory=dict)
    received: dict[int, str | None] = field(default_factory=dict)
    retained: dict[str, Message | None] = field(default_factory=dict)
    gone_messages: list[int] = field(default_factory=list)
    gone_deliveries: list[int] = field(default_factory=list)
    debts: list[Debt] = field(default_factory=list)
    gated: list[ClientConnection] = field(default_factory=list)
    kept: dict[bytes, bytes | None] = field(default_factory=dict)
    waiters: list[Callable[[], None]] = field(default_factory=list)
    patient: list[Callable[[], None]] = field(default_factory=list)  # waiters that do not hurry the write
    within_s: float = float("inf")  # from a change to the write

    @property
    def is_empty(self) -> bool:
        changed = self.sessions or self.subscriptions or self.messages or self.deliveries or self.received
        return not (changed or self.retained or self.kept or self.gone_messages or self.gone_deliveries)

    @property
    def is_due(self) -> bool:
        """True if the batch is to be written, or is waited for."""
        return bool(self.patient) or not self.is_empty

    @property
    def is_awaited(self) -> bool:
        is_urgent = bool(self.gated or self.waiters) or len(self.patient) >= PATIENT_MAX
        return is_urgent or any(debt.is_open for debt in self.debts)

    def changed_rows(self) -> Changes:
        """Returns the changes as rows, without rows of sessions that have ended meanwhile."""
        gone = {session for session, record in self.sessions.items() if record is None}
        result = Changes(
            sessions=[record.row() for record in self.sessions.values() if record is not None],
            messages=[message_row(id_, message) for id_, message in self.messages.items()],
            gone_sessions=list(gone),
            gone_messages=self.gone_messages,
            gone_deliveries=self.gone_deliveries,
        )
        for id_, (record, queued, packet_id, stage) in self.deliveries.items():
            held = queued.message.stored if queued is not None else None
            message = held.id if isinstance(held, HeldMessage) else 0
            result.deliveries.append(delivery_row(id_, record.id, message, queued, packet_id, stage))
        for (session, topic_filter), subscription in self.subscriptions.items():
            if subscription is None:
                result.gone_subscriptions.append((session, topic_filter))
            elif session not in gone:
                result.subscriptions.append(subscription_row(session, subscription))
        for flow, topic in self.received.items():
            if topic is None:
                result.gone_received.append(flow)
            elif flow >> 16 not in gone:
                result.received.append((flow, topic))
        for topic, retained in self.retained.items():
            if retained is None:
                result.gone_retained.append(topic)
            else:
                result.retained.append(message_row(topic, retained))
        for key, value in self.kept.items():
            if value is None:
                result.gone_kept.append(key)
            else:
                result.kept.append((key, value))
        return result

    def put_before(self, later: Batch) -> None:
        """Moves the changes of this unwritten batch into `later`, whose own changes are newer."""
        later.first = self.first
        for name in ("sessions", "subscriptions", "received", "retained", "kept"):
            setattr(later, name, {**getattr(self, name), **getattr(later, name)})
        gone = set(later.gone_deliveries)
        later.deliveries = {id_: one for id_, one in self.deliveries.items() if id_ not in gone} | later.deliveries
        later.gone_deliveries = self.gone_deliveries + [id_ for id_ in later.gone_deliveries if id_ < self.first]
        gone = set(later.gone_messages)
        later.messages = {id_: one for id_, one in self.messages.items() if id_ not in gone} | later.messages
        later.gone_messages = self.gone_messages + [id_ for id_ in later.gone_messages if id_ < self.first]
        later.gated = self.gated + later.gated
        later.waiters = self.waiters + later.waiters
        later.patient = self.patient + later.patient
        later.within_s = min(self.within_s, later.within_s)
