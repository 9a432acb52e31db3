"""Which topics cross a bridge under which name, and where a message has been before. No I/O.

A topic crosses by the first entry of its direction that matches. A message that leaves carries in a user property which
brokers with bridges it has passed; one that comes back to such a broker, over whatever circle, ends there. MQTT 3.1.1
has no properties: there only the other broker's knowledge that we are a bridge keeps it from coming back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.base import matches
from gateway.base import BridgeTopic
from gateway.mqtt5.packets import Properties

MARK = "bridged-by"
PASSED_MAX = 16
"""Brokers that one message may pass; also stops a mark from growing without end."""


class Topics:
    """The entries of one bridge."""

    def __init__(self, entries: Sequence[BridgeTopic]) -> None:
        self._out = [entry for entry in entries if entry.direction in ("out", "both")]
        self._in = [entry for entry in entries if entry.direction in ("in", "both")]

    def wanted_here(self) -> dict[str, int]:
        """Filters to subscribe to at our broker, with the QoS."""
        return _highest([(entry.local, entry.qos) for entry in self._out])

    def wanted_there(self) -> dict[str, int]:
        """Filters to subscribe to at the other broker, with the QoS."""
        return _highest([(entry.remote, entry.qos) for entry in self._in])

    def outwards(self, topic: str) -> str | None:
        """The name there of what was published here; None: it does not cross."""
        for entry in self._out:
            if matches(entry.local, topic):
                return entry.remote_prefix + topic[len(entry.local_prefix) :]
        return None

    def inwards(self, topic: str) -> str | None:
        """The name here of what was published there; None: it does not cross."""
        for entry in self._in:
            if matches(entry.remote, topic):
                return entry.local_prefix + topic[len(entry.remote_prefix) :]
        return None


def _highest(filters: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic_filter, qos in filters:
        found[topic_filter] = max(qos, found.get(topic_filter, 0))
    return found


class Marks:
    """Marks of one broker. `name`: what it is called in marks, unlike any other's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def may_enter(self, properties: Properties) -> bool:
        """Whether a message from elsewhere has not passed us before, nor too many others."""
        passed = [value for name, value in properties.user if name == MARK]
        return self._name not in passed and len(passed) < PASSED_MAX

    def leaving(self, properties: Properties) -> Properties:
        """What the message carries on: itself, and that it passed us; nothing that belongs to one connection."""
        user = (*properties.user, (MARK, self._name)) if self.is_new(properties) else properties.user
        return replace(properties, user=user, topic_alias=None, subscription_ids=())

    def is_new(self, properties: Properties) -> bool:
        return (MARK, self._name) not in properties.user
