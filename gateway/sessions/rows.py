"""Conversion between the broker's state of its clients and the rows of `database`. No state, no I/O.

A message is stored as its MQTT 5 PUBLISH, with the instant of its expiry beside it, so that one codec reads the
network and the disk.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.clients.since import SINCE_PREFIX
from gateway.data import StoreError
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.delivery import Queued
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import NO_PROPERTIES, Publish, Subscription, Version, Will
from gateway.mqtt5.properties import Carrier, decode_properties, encode_properties
from gateway.mqtt5.session import KeptSession, SessionSubscription
from gateway.mqtt5.types import MqttError

Row = tuple[Any, ...]


def message_row(key: int | str, message: Message) -> Row:
    """Returns the row of a message for `messages` (key: its id) or `retained` (its topic)."""
    return key, message.whole(), message.expires_at, message.publisher


def message_of(row: Row) -> Message:
    """Returns the message in a row. Raises StoreError if the packet is damaged."""
    _, packet, expires_at, publisher = row
    decoder = Decoder(Version.V5)
    packets = decoder.feed(packet)
    if len(packets) != 1 or decoder.held_bytes or not isinstance(packets[0], Publish):
        raise StoreError(f"message {row[0]} in the data directory is damaged; restore it or empty the directory")
    one = packets[0]
    return Message(one.topic, one.payload, one.qos, one.retain, one.properties, expires_at, publisher)


def session_row(
    key: int, client_id: str, user: str | None, anonymous: bool, connected: bool, kept: KeptSession,
    groups: tuple[str, ...] | None = None,
) -> Row:  # fmt: skip
    """Returns a session as a row. `groups`: those that a provider says of its user."""
    will = kept.will
    last = (None,) * 5
    if will is not None:
        properties = encode_properties(will.properties, Carrier.WILL)
        last = (will.topic, will.payload, will.qos, will.retain, properties)  # type: ignore[assignment]
    times = (kept.session_expiry_s, connected, kept.will_at, kept.ends_at)
    said = None if groups is None else json.dumps(groups)
    return key, client_id, user, anonymous, int(kept.version), *times, *last, said


def kept_of(row: Row) -> KeptSession:
    """Returns the session state in a row. Raises StoreError if the will is damaged."""
    version, expiry_s, _, will_at, ends_at, topic, payload, qos, retain, encoded = row[4:14]
    will = None
    if topic is not None:
        try:
            properties, _ = decode_properties(encoded, 0, len(encoded), Carrier.WILL)
        except MqttError:
            raise StoreError(
                f"will of {row[1]!r} in the data directory is damaged; restore it or empty the directory"
            ) from None
        will = Will(topic, payload, qos, bool(retain), properties or NO_PROPERTIES)
    return KeptSession(Version(version), expiry_s, will, will_at, ends_at)


def groups_of(row: Row) -> tuple[str, ...] | None:
    """Returns the groups in a session's row."""
    return None if row[14] is None else tuple(json.loads(row[14]))


def subscription_row(session: int, subscription: SessionSubscription) -> Row:
    """Returns a subscription as a row."""
    one = subscription.options
    options = (one.qos, one.no_local, one.retain_as_published, one.retain_handling)
    return session, one.filter, *options, subscription.identifier, one.predicate


def subscription_of(row: Row) -> SessionSubscription:
    """Returns the subscription in a row."""
    _, topic_filter, qos, no_local, retain_as_published, retain_handling, identifier, predicate = row
    since = topic_filter.split("/", 2)[1] if topic_filter.startswith(SINCE_PREFIX) else ""
    options = Subscription(
        topic_filter, qos, bool(no_local), bool(retain_as_published), retain_handling, predicate, since
    )
    return SessionSubscription(options, identifier)


def delivery_row(key: int, session: int, message: int, queued: Queued | None, packet_id: int, stage: int) -> Row:
    """Returns a delivery as a row. `queued` None: a flow of QoS 2 with only PUBREL and PUBCOMP to come."""
    if queued is None:
        return key, session, 0, 2, 0, None, packet_id, stage
    identifiers = json.dumps(queued.subscription_ids) if queued.subscription_ids else None
    return key, session, message, queued.qos, queued.retain, identifiers, packet_id, stage


def queued_of(row: Row, message: Message) -> Queued:
    """Returns the delivery in a row."""
    key, _, _, qos, retain, identifiers = row[:6]
    ids = tuple(json.loads(identifiers)) if identifiers else ()
    return Queued(message, qos, bool(retain), message.held_bytes, ids, key)
