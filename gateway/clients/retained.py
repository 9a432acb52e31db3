"""Retained messages of the broker, which a new subscriber gets at once (MQTT 5.0 §3.3.1.3).

For plugins of amqtt a mapping from topic to `RetainedApplicationMessage`, which they read and fill; inside are messages
of MQTT 5 alone. In memory, bounded in number and bytes.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

from amqtt.broker import RetainedApplicationMessage

from bridge.base import NameTree, NameWeights, has_wildcard
from gateway.mqtt5.encoding import encode_name
from gateway.mqtt5.message import Message

ENTRY_BYTES = 256
"""The cost of an entry beside its topic and payload, so that many small entries count too."""


class EdgeRetained(RetainedApplicationMessage):  # type: ignore[misc]
    """Retained message as amqtt's plugins know it, with the message for subscribers; `data` is empty for a topic that
    was cleared.
    """

    __slots__ = ("message",)

    def __init__(self, session: Any, message: Message) -> None:
        super().__init__(session, message.topic, message.payload, message.qos)
        self.message = message


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

    def adopt_bounds(self, maximum: int, maximum_bytes: int) -> None:
        """Sets other bounds for later messages; kept messages stay."""
        self._maximum, self._maximum_bytes = maximum, maximum_bytes

    def __getitem__(self, topic: str) -> EdgeRetained:
        return EdgeRetained(None, self.data[topic])

    def __setitem__(self, topic: str, retained: Any) -> None:
        encode_name(topic)  # raises for a name that no subscriber could be sent
        self.enter_message(topic, _message(retained))

    def enter_message(self, topic: str, message: Message) -> None:
        """Keeps a message on a topic, whatever the bounds."""
        if (old := self.data.get(topic)) is None:
            self._names.add(topic)
        else:
            self.held_bytes -= _cost(old)
        cost = _cost(message)
        self.held_bytes += cost
        # Each place counts as its share of `maximum_bytes`.
        self._weights.set_weight(topic, cost + self._maximum_bytes // max(1, self._maximum))
        self.data[topic] = message
        if self.changed is not None:
            self.changed(topic, message)

    def __delitem__(self, topic: str) -> None:
        self.held_bytes -= _cost(self.data.pop(topic))
        self._weights.drop_name(topic)
        self._names.discard(topic)
        if self.changed is not None:
            self.changed(topic, None)

    def retain_message(self, message: Message) -> bool:
        """Retains a publication, or clears the topic if its payload is empty. Returns False if there was nothing to
        clear.

        Raises StoreFullError for a message that would be dropped at once; then nothing is retained there.
        """
        topic = message.topic
        if not message.payload:
            if topic not in self.data:
                return False
            del self[topic]
            return True
        message.place = self.kept_so_far
        self.enter_message(topic, message)
        self.kept_so_far += 1
        while (bound := self._exceeded()) is not None:
            gone = topic if _cost(message) > self._maximum_bytes else self._weights.heaviest()
            del self[gone]
            if gone == topic:
                raise StoreFullError(bound)
            self.full(bound, gone)
        return True

    def _exceeded(self) -> str | None:
        if len(self.data) > self._maximum:
            return "retained_messages"
        return "retained_bytes" if self.held_bytes > self._maximum_bytes else None

    def matching(self, topic_filter: str, now: float, until: int | None = None) -> Iterator[Message]:
        """Yields the messages for a subscription to the filter; drops messages that have expired by `now`.

        `until`: `kept_so_far` when the subscription began; the subscriber got later messages when they were
        published.
        """
        topics = self._names.matching(topic_filter) if has_wildcard(topic_filter) else (topic_filter,)
        for topic in topics:
            message: Message | None = self.data.get(topic)
            if message is None:  # cleared during a wait for the receiver
                continue
            if message.expires_at is not None and message.expired(now):
                del self[topic]
            elif until is None or message.place < until:
                yield message

    def drop_expired(self, now: float) -> None:
        for topic in [topic for topic, message in self.data.items() if message.expired(now)]:
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
    return Message(retained.topic, bytes(retained.data or b""), retained.qos or 0, retain=True)


def _cost(message: Message) -> int:
    return ENTRY_BYTES + message.held_bytes
