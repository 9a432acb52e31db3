"""Restoring of a broker's stored state before the first connection is accepted.

Sessions go on as if their connections had ended now: will delay and session expiry of connected sessions begin, those
of others go on, and overdue ones follow with the first tick. Messages keep the instant of their expiry. Sessions that
amqtt's persistence plugin has restored by then give way.
"""

from __future__ import annotations

import logging

from gateway.base import uncollected
from gateway.base.log_events import LogEvent
from gateway.broker.exchange import Exchange
from gateway.broker.lifecycle import PEER_PREFIX, Lifecycle
from gateway.clients import Client
from gateway.data import StoreError
from gateway.mqtt5.delivery import Queued
from gateway.mqtt5.flows import NONE
from gateway.mqtt5.message import Message
from gateway.mqtt5.session import SessionSubscription
from gateway.plugins import EdgeSession
from gateway.sessions import (
    IN_FLIGHT,
    RELEASED,
    Content,
    HeldMessage,
    Row,
    SessionRecord,
    SessionStore,
    groups_of,
    kept_of,
    message_of,
    queued_of,
    received_of,
    subscription_of,
)

log = logging.getLogger("veilmq.broker")


def restore(store: SessionStore, lifecycle: Lifecycle, exchange: Exchange) -> None:
    """Fills an idle broker from its store, then reports every change to the store. Raises StoreError."""
    with uncollected():
        _restore(store, lifecycle, exchange)


def _restore(store: SessionStore, lifecycle: Lifecycle, exchange: Exchange) -> None:
    for key, client in list(lifecycle.clients.items()):
        if not key.startswith(PEER_PREFIX):
            lifecycle.forget_session(client)
    exchange.retained.clear()
    content = store.load(exchange.now)
    now = exchange.now()
    for row in content.retained:
        exchange.retained.enter_message(row[0], message_of(row))
    messages: dict[int, Message] = {}
    for row in content.messages.values():
        message = messages[row[0]] = message_of(row)
        message.stored = HeldMessage(row[0])
    lifecycle.attend_to_all(
        [_restore_session(store, lifecycle, row, content, messages, now) for row in content.sessions]
    )
    exchange.keep_in(store)
    exchange.retained.drop_expired(now)
    if content.sessions or content.retained:
        LogEvent.RESTORED.say(log, len(content.sessions), len(content.retained))


def _restore_session(
    store: SessionStore, lifecycle: Lifecycle, row: Row, content: Content, messages: dict[int, Message], now: float
) -> Client:
    id_, client_id, user, anonymous = row[:4]
    kept, was_connected = kept_of(row), bool(row[6])
    view = EdgeSession()
    view.client_id, view.clean_session = client_id, False
    if user is not None:
        view.username = user
    if anonymous:
        view.is_anonymous = True
    if (groups := groups_of(row)) is not None:
        view.groups = groups
    client = lifecycle.enter_offline(view)
    session = client.session
    record = client.record = SessionRecord(store, client, id_)
    received = content.received.get(id_)
    session.restore_state(kept, *received_of(received) if received else (NONE, NONE))
    if rows := content.deliveries.get(id_):  # most sessions have none
        _restore_queue(client, record, rows, messages)
    if was_connected:
        session.begin_absence(now)
    if kept.session_expiry_s:  # others are kept for their wills only
        session.journal = record
    if stored := content.subscriptions.get(id_):
        _restore_subscriptions(client, lifecycle, stored)
    return client


def _restore_subscriptions(client: Client, lifecycle: Lifecycle, rows: list[Row]) -> None:
    subscriptions: dict[str, SessionSubscription] = {}
    for row in rows:
        subscription = subscription_of(row)
        subscriptions[subscription.options.filter] = subscription
        # The overlay asks for all filters when it starts, which is later.
        lifecycle.exchange.delivery.router.subscribe(client, subscription.options, subscription.identifier)
    client.filters = dict(subscriptions)
    client.session.restore_subscriptions(subscriptions)


def _restore_queue(client: Client, record: SessionRecord, rows: list[Row], messages: dict[int, Message]) -> None:
    waiting: list[Queued] = []
    in_flight: dict[int, Queued] = {}
    for row in rows:
        packet_id, stage = row[6:]
        if stage == RELEASED:
            record.released_ids[packet_id] = row[0]
            continue
        message = messages.get(row[2])
        if message is None:
            raise StoreError("the data directory lacks a queued message; restore it or empty the directory")
        assert isinstance(message.stored, HeldMessage)
        message.stored.references += 1
        queued = queued_of(row, message)
        if stage == IN_FLIGHT:
            in_flight[packet_id] = queued
        else:
            waiting.append(queued)
    client.session.restore_outbound(waiting, in_flight, record.released_ids)
