"""Retained messages of the broker, which a new subscriber gets at once (MQTT 5.0 §3.3.1.3).

A mapping from topic to amqtt's `RetainedApplicationMessage`, because plugins of amqtt read and fill it; entries of
this broker carry the MQTT 5 message too. In memory, bounded in number and bytes.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

from amqtt.broker import RetainedApplicationMessage

from bridge.base import NameTree, NameWeights, has_wildcard
from gateway.mqtt5.message import Message

ENTRY_BYTES = 256
"""The cost of an entry beside its topic and payload, so that many small entries count too."""


class EdgeRetained(RetainedApplicationMessage):  # type: ignore[misc]
    """Retained message as amqtt's plugins know it, with the message for subscribers.

    `place`: the number of messages kept in its store before it since the start; -1 for messages of an earlier run.
    """

    __slots__ = ("message", "place")

    def __init__(self, session: Any, message: Message, place: int = -1) -> None:
        super().__init__(session, message.topic, message.payload, message.qos)
        self.message, self.place = message, place


class RetainedStore(UserDict[str, Any]):
    """Store of retained messages by topic, with the names in a tree for filters with wildcards.

    `maximum` and `maximum_bytes` stop clients that retain under ever new names from filling memory: then the oldest
    message of the heaviest branch of topics is dropped (`NameWeights`). Plugins may assign directly; this is the
    operator's code and drops nothing.
    """

    def __init__(self, maximum: int, maximum_bytes: int) -> None:
        self._names = NameTree()
        self._maximum, self._maximum_bytes = maximum, maximum_bytes
        self.held_bytes = 0
        self.kept_so_far = 0
        # Called at every change: topic, and message or None.
        self.changed: Callable[[str, Message | None], None] | None = None
        # Called for every message dropped to make room: the bound, and its topic.
        self.full: Callable[[str, str], None] = lambda bound, topic: None
        self._weights = NameWeights()
        super().__init__()

    def adopt(self, maximum: int, maximum_bytes: int) -> None:
        """Sets other bounds for later messages; kept messages stay."""
        self._maximum, self._maximum_bytes = maximum, maximum_bytes

    def __setitem__(self, topic: str, retained: Any) -> None:
        if (old := self.data.get(topic)) is None:
            self._names.add(topic)
        else:
            self.held_bytes -= _cost(topic, old)
        self.held_bytes += _cost(topic, retained)
        # Each place counts as its share of `maximum_bytes`.
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
        """Retains a publication, or clears the topic if its payload is empty.

        Returns the entry to tell plugins: the new one, or the old one emptied; None if there was nothing to clear.
        Raises StoreFullError for a message that would be dropped at once; then nothing is retained there.
        """
        topic = message.topic
        old = self.data.get(topic)
        if not message.payload:
            if old is None:
                return None
            del self[topic]
            old.data = b""  # amqtt's sign to its plugins that a topic was cleared
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
        """Yields the messages for a subscription to the filter; drops messages that have expired by `now`.

        `until`: `kept_so_far` when the subscription began; the subscriber got later messages when they were
        published.
        """
        if has_wildcard(topic_filter):
            topics = list(self._names.matching(topic_filter))
        else:
            topics = [topic_filter] if topic_filter in self.data else []
        for topic in topics:
            retained = self.data.get(topic)
            if retained is None:  # cleared during a wait for the receiver
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
    """Error of a full store: the message reached its subscribers but is not retained. `bound`: the name of the
    bound.
    """

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
