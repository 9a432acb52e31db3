"""Early keys and publications: sealed for views and trees that are not in force here yet, and kept until then.

Nobody is at fault: a publisher ahead of us seals for what we do not know yet. Signatures were verified; shares, content
and other properties were not. So each neighbour's wires count apart for each publisher, which loses its own only: also
a publisher with views that never come, or a liar with ever new shares of one key. Not here: the room (`EarlyRoom`), the
callers, which look again when views or trees change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeAlias

from bridge.contract import CHAR_BYTES, EarlyPolicy, EarlyRoom, Effect, Received, kept_early, wire_bytes
from bridge.wire.pieces import PROPERTY_PART
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS, KeyHeader, from_property

EARLY_KEYS_MAX = 2048  # (neighbour, key, shares)
EARLY_KEYS_BYTES = 32 << 20  # of all: nobody signed the shares and the topic, which may be long
KEYS = EarlyPolicy(EARLY_KEYS_BYTES, EARLY_KEYS_BYTES // EARLY_KEYS_MAX)

EarlyKey: TypeAlias = tuple[str, str, dict[str, str]]
"""Sender, topic and properties of a key header with shares, as they came."""
EarlyKeys: TypeAlias = EarlyRoom[bytes, EarlyKey]
EarlyPublications: TypeAlias = EarlyRoom[bytes, Received]

_OF_KEY = (PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS)


def keep_key(room: EarlyKeys, sender: str, properties: Mapping[str, str], topic: str) -> None:
    """Keeps a key once. `properties` hold a key header whose signature was verified."""
    told = {name: properties[name] for name in _OF_KEY if name in properties}
    name = hashlib.sha256("\0".join((sender, topic, *told.values())).encode()).digest()
    if name in room:
        return
    publisher = KeyHeader.decode(from_property(told[PROPERTY_KEY])).publisher
    size = CHAR_BYTES * (len(topic) + sum(map(len, told.values())))
    room.keep_value(name, publisher + sender.encode(), (sender, topic, told), max(0, size - KEYS.overhead_bytes))


def keep_publication(room: EarlyPublications, event: Received, publisher: bytes) -> list[Effect]:
    """Keeps a wire once a neighbour; returns counts. `publisher`: party id, whose header was verified."""
    told = dict(event.wire.properties)  # properties beside the header are unsigned
    parts = event.peer, told[PROPERTY_HEADER], told.get(PROPERTY_PART, "")
    name = hashlib.sha256("\0".join(parts).encode()).digest()
    if name in room:
        return kept_early()
    return kept_early(len(room.keep_value(name, publisher + event.peer.encode(), event, wire_bytes(event.wire)) or ()))
