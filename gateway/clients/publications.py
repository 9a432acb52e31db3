"""Conversion of messages to and from publications of the overlay, and the properties the overlay reserves. No routing,
no state.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from bridge.base import check_name
from bridge.contract import Publication, UserProperties, is_bare, sealed_of
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import NO_PROPERTIES, Properties, Publish
from gateway.mqtt5.properties import Carrier, encode_property_fields
from keys.message import SEALED_PROPERTIES
from keys.records import NOTHING

RESERVED_PROPERTY = "vmq"
"""User properties with this prefix belong to the overlay; ordinary clients neither send nor see them."""

ONE_PROPERTY_MAX = 64
"""Encoded user properties of messages with a single one: past messages have the time of publication, by batches."""


def publication_of(message: Message, now: float, owner: str = "") -> Publication:
    """Returns the message as a publication of the overlay; its expiry is the remaining time at `now`, in seconds.
    `owner`: the local user or address for whom the message counts.
    """
    properties = message.properties
    time_ms = time.time_ns() // 1_000_000
    if properties is NO_PROPERTIES and message.expires_at is None:  # as most are
        return Publication(message.topic, message.payload, message.qos, message.retain, time_ms=time_ms, owner=owner)
    return Publication(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        properties=properties.user,
        expiry_s=message.remaining_s(now),
        time_ms=time_ms,
        owner=owner,
        **{name: getattr(properties, name) for name in SEALED_PROPERTIES},
    )


def publications_of(run: Iterable[Publish], owner: str) -> list[Publication]:
    """Returns PUBLISHes of QoS 1 without retain flag and properties as publications of the overlay. `owner` has the
    meaning that it has in `publication_of`.
    """
    time_ms = time.time_ns() // 1_000_000
    return [Publication(publish.topic, publish.payload, 1, time_ms=time_ms, owner=owner) for publish in run]


def message_of(publication: Publication, now: float) -> Message:
    """Returns a publication of the overlay as a message for local clients. Raises TopicError."""
    topic, expiry_s = check_name(publication.topic), publication.expiry_s
    if is_bare(publication):  # as most are
        return Message(topic, publication.payload, publication.qos, publication.retain)
    expires_at = None if expiry_s is None else now + expiry_s
    sealed = sealed_of(publication)
    if sealed == NOTHING and len(publication.properties) == 1:
        properties, encoded = _one_property(publication.properties)
        message = Message(topic, publication.payload, publication.qos, publication.retain, properties, expires_at)
        message.has_encoded(encoded)
        return message
    named: dict[str, Any] = dict(zip(SEALED_PROPERTIES, sealed, strict=True))
    properties = without_reserved(Properties(user=publication.properties, **named))
    return Message(topic, publication.payload, publication.qos, publication.retain, properties, expires_at)


@lru_cache(maxsize=ONE_PROPERTY_MAX)
def _one_property(user: UserProperties) -> tuple[Properties, bytes]:
    """Returns properties with one user property alone, and their encoded form. Raises UnsendablePacket."""
    properties = without_reserved(Properties(user=user))
    return properties, encode_property_fields(properties, Carrier.PUBLISH)


def without_reserved(properties: Properties) -> Properties:
    """Returns the properties without the user properties belonging to the overlay."""
    user = tuple(pair for pair in properties.user if not pair[0].startswith(RESERVED_PROPERTY))
    if len(user) == len(properties.user):
        return properties
    properties = replace(properties, user=user)
    return NO_PROPERTIES if properties == NO_PROPERTIES else properties
