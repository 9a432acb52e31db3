"""Retained messages of the broker: what a new subscriber gets at once (MQTT 5.0 §3.3.1.3).

A mapping from topic to amqtt's `RetainedApplicationMessage`, because plugins of amqtt read and fill it;
ours carry MQTT 5 properties and an expiry besides. In memory, bounded in number and bytes.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from amqtt.broker import RetainedApplicationMessage

from bridge.topics import NameTree, has_wildcard

from .mqtt5.packets import NO_PROPERTIES, Properties, Publish

#: What an entry costs beside its topic and payload, so that many empty ones count too.
ENTRY_BYTES = 256


class EdgeRetained(RetainedApplicationMessage):  # type: ignore[misc]
    """A retained message with its MQTT 5 properties; `expires_at`: seconds since the UNIX epoch, or None."""

    __slots__ = ("expires_at", "properties")

    def __init__(self, session: Any, publish: Publish, now: float) -> None:
        super().__init__(session, publish.topic, publish.payload, publish.qos)
        self.properties = publish.properties
        lifetime_s = publish.properties.message_expiry_s
        self.expires_at = None if lifetime_s is None else now + lifetime_s


class RetainedStore(UserDict[str, Any]):
    """Topic -> retained message, with the names in a tree for filters with wildcards.

    `maximum` and `maximum_bytes` stop clients that retain under ever new names from filling memory. Plugins
    may assign directly; that is the operator's code and is not bounded.
    """

    def __init__(self, maximum: int, maximum_bytes: int) -> None:
        self._names = NameTree()
        self._maximum, self._maximum_bytes = maximum, maximum_bytes
        self.held_bytes = 0
        super().__init__()

    def __setitem__(self, topic: str, message: Any) -> None:
        if (old := self.data.get(topic)) is None:
            self._names.add(topic)
        else:
            self.held_bytes -= _cost(topic, old)
        self.held_bytes += _cost(topic, message)
        self.data[topic] = message

    def __delitem__(self, topic: str) -> None:
        self.held_bytes -= _cost(topic, self.data.pop(topic))
        self._names.discard(topic)

    def keep(self, session: Any, publish: Publish, now: float) -> bool:
        """Retain a publication, or clear the topic if its payload is empty. False: the store is full."""
        old = self.data.get(publish.topic)
        if not publish.payload:
            if old is not None:
                del self[publish.topic]
            return True
        message = EdgeRetained(session, publish, now)
        freed = 0 if old is None else _cost(publish.topic, old)
        too_many = old is None and len(self.data) >= self._maximum
        if too_many or self.held_bytes - freed + _cost(publish.topic, message) > self._maximum_bytes:
            return False
        self[publish.topic] = message
        return True

    def matching(self, topic_filter: str, now: float) -> Iterator[Publish]:
        """What a subscription to the filter gets, with what is left of each message's lifetime."""
        if has_wildcard(topic_filter):
            topics = list(self._names.matching(topic_filter))
        else:
            topics = [topic_filter] if topic_filter in self.data else []
        for topic in topics:
            message = self.data[topic]
            properties: Properties = getattr(message, "properties", None) or NO_PROPERTIES
            expires_at = getattr(message, "expires_at", None)
            if expires_at is not None:
                if expires_at <= now:
                    del self[topic]
                    continue
                properties = replace(properties, message_expiry_s=max(1, int(expires_at - now)))
            yield Publish(topic, bytes(message.data), message.qos or 0, retain=True, properties=properties)

    def drop_expired(self, now: float) -> None:
        expired = [
            topic
            for topic, message in self.data.items()
            if (getattr(message, "expires_at", None) or now + 1) <= now
        ]
        for topic in expired:
            del self[topic]


def _cost(topic: str, message: Any) -> int:
    return ENTRY_BYTES + len(topic) + len(message.data or b"")
