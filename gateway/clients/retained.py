"""Retained messages of the broker: what a new subscriber gets at once (MQTT 5.0 §3.3.1.3).

A mapping from topic to amqtt's `RetainedApplicationMessage`, because plugins of amqtt read and fill it;
ours carry the MQTT 5 message besides. In memory, bounded in number and bytes.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

from amqtt.broker import RetainedApplicationMessage

from bridge.base import NameTree, has_wildcard
from gateway.clients.name_weights import NameWeights
from gateway.mqtt5.message import Message

ENTRY_BYTES = 256
"""What an entry costs beside its topic and payload, so that many small ones count too."""


class EdgeRetained(RetainedApplicationMessage):  # type: ignore[misc]
    """A retained message as amqtt's plugins know it, with the message that subscribers get.

    `place`: how many were kept in its store before it since the start; -1 for what is from before.
    """

    __slots__ = ("message", "place")

    def __init__(self, session: Any, message: Message, place: int = -1) -> None:
        super().__init__(session, message.topic, message.payload, message.qos)
        self.message, self.place = message, place


class RetainedStore(UserDict[str, Any]):
    """Topic -> retained message, with the names in a tree for filters with wildcards.

    `maximum` and `maximum_bytes` stop clients that retain under ever new names from filling memory: then the oldest of
    the heaviest branch of topics goes (`name_weights.py`). Plugins may assign directly; that is the operator's code and
    makes nothing go.
    """

    def __init__(self, maximum: int, maximum_bytes: int) -> None:
        self._names = NameTree()
        self._maximum, self._maximum_bytes = maximum, maximum_bytes
        self.held_bytes = 0
        self.kept_so_far = 0
        # Told of every change: topic, and message or None.
        self.changed: Callable[[str, Message | None], None] | None = None
        # Told of every message that went for another one: the bound, and its topic.
        self.full: Callable[[str, str], None] = lambda bound, topic: None
        self._weights = NameWeights()
        super().__init__()

    def adopt(self, maximum: int, maximum_bytes: int) -> None:
        """Other bounds for what comes; what is kept stays."""
        self._maximum, self._maximum_bytes = maximum, maximum_bytes

    def __setitem__(self, topic: str, retained: Any) -> None:
        if (old := self.data.get(topic)) is None:
            self._names.add(topic)
        else:
            self.held_bytes -= _cost(topic, old)
        self.held_bytes += _cost(topic, retained)
        # A place among so many is worth as many bytes as there are for each.
        self._weights.put(topic, _cost(topic, retained) + self._maximum_bytes // max(1, self._maximum))
        self.data[topic] = retained
        if self.changed is not None:
            self.changed(topic, _message(retained))

    def __delitem__(self, topic: str) -> None:
        self.held_bytes -= _cost(topic, self.data.pop(topic))
        self._weights.drop(topic)
        self._names.discard(topic)
        if self.changed is not None:
            self.changed(topic, None)

    def keep(self, session: Any, message: Message) -> RetainedApplicationMessage | None:
        """Retain a publication, or clear the topic if its payload is empty.

        What plugins are told: the new entry, or the old one emptied; None if there was nothing to clear.
        Raises StoreFullError for one that would have to go at once; then nothing is retained there.
        """
        topic = message.topic
        old = self.data.get(topic)
        if not message.payload:
            if old is None:
                return None
            del self[topic]
            old.data = b""  # how amqtt tells its plugins that a topic was cleared
            return old
        retained = EdgeRetained(session, message, self.kept_so_far)
        self[topic] = retained
        self.kept_so_far += 1
        while (bound := self._exceeded()) is not None:
            gone = topic if _cost(topic, retained) > self._maximum_bytes else self._weights.heaviest()
            del self[gone]
            if gone == topic:
                raise StoreFullError(bound)
            self.full(bound, gone)
        return retained

    def _exceeded(self) -> str | None:
        if len(self.data) > self._maximum:
            return "retained_messages"
        return "retained_bytes" if self.held_bytes > self._maximum_bytes else None

    def matching(self, topic_filter: str, now: float, until: int | None = None) -> Iterator[Message]:
        """What a subscription to the filter gets; what has expired by `now` is dropped.

        `until`: `kept_so_far` when the subscription began; it got what was kept later as it was published.
        """
        if has_wildcard(topic_filter):
            topics = list(self._names.matching(topic_filter))
        else:
            topics = [topic_filter] if topic_filter in self.data else []
        for topic in topics:
            retained = self.data.get(topic)
            if retained is None:  # cleared while the receiver was waited for
                continue
            message = _message(retained)
            if message.expired(now):
                del self[topic]
            elif until is None or not isinstance(retained, EdgeRetained) or retained.place < until:
                yield message

    def drop_expired(self, now: float) -> None:
        for topic in [topic for topic, retained in self.data.items() if _message(retained).expired(now)]:
            del self[topic]


class StoreFullError(Exception):
    """Bounds of the store are reached: the message reached its subscribers but is not retained. `bound`: which."""

    def __init__(self, bound: str) -> None:
        super().__init__(bound)
        self.bound = bound


def _message(retained: Any) -> Message:
    if isinstance(retained, EdgeRetained):
        return retained.message
    # Put here by a plugin of amqtt.
    return Message(retained.topic, bytes(retained.data), retained.qos or 0, retain=True)


def _cost(topic: str, retained: Any) -> int:
    if isinstance(retained, EdgeRetained):
        return ENTRY_BYTES + retained.message.held_bytes
    return ENTRY_BYTES + len(topic) + len(retained.data or b"")
