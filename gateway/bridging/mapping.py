"""Topics of a bridge, their names at the other broker, and marks of passed brokers. No I/O.

A topic crosses by the first entry of its direction that matches. A message carries the names of passed brokers in
user properties; back at such a broker, over any circle, the message ends. MQTT 3.1.1 has no properties: there `twins`
is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256

from bridge.base import matches
from gateway.base import BridgeSettings, BridgeTopic
from gateway.client.redial import split_host_port
from gateway.mqtt5.bridge_clients import MARK
from gateway.mqtt5.packets import Properties, UserProperties

PASSED_MAX = 16
"""Brokers that one message may pass; also stops a mark from growing without end."""


class Topics:
    """Topics of a bridge, from the entries of its configuration."""

    def __init__(self, entries: Sequence[BridgeTopic]) -> None:
        self._out = [entry for entry in entries if entry.direction in ("out", "both")]
        self._in = [entry for entry in entries if entry.direction in ("in", "both")]

    def wanted_here(self) -> dict[str, int]:
        """Returns filters to subscribe to at the local broker, with the QoS."""
        return _highest([(entry.local, entry.qos) for entry in self._out])

    def wanted_there(self) -> dict[str, int]:
        """Returns filters to subscribe to at the other broker, with the QoS."""
        return _highest([(entry.remote, entry.qos) for entry in self._in])

    def local_in(self) -> list[str]:
        """Returns filters of topics from the other broker, by their names here."""
        return [entry.local for entry in self._in]

    def outwards(self, topic: str) -> str | None:
        """Returns the name there of a topic published here; None: it does not cross."""
        for entry in self._out:
            if matches(entry.local, topic):
                return entry.remote_prefix + topic[len(entry.local_prefix) :]
        return None

    def inwards(self, topic: str) -> str | None:
        """Returns the name here of a topic published there; None: it does not cross."""
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
    """Marks of a broker: the brokers a message has passed. `name`: of this broker, unlike any other's.

    `also`: further names under which a topic has been here, such as that of the overlay carrying it.
    """

    def __init__(self, name: str, also: Callable[[str], tuple[str, ...]] = lambda topic: ()) -> None:
        self.name, self._also = name, also

    def has_been(self, topic: str, properties: Properties) -> bool:
        """Returns True if a message under this local topic was here before, or passed too many brokers."""
        passed = passed_by(properties.user)
        return self.name in passed or len(passed) >= PASSED_MAX or any(one in passed for one in self._also(topic))

    def entering(self, properties: Properties, names: Iterable[str]) -> Properties:
        """Returns the properties here of a message from the broker of these names, marked with both brokers."""
        return _stamped(properties, (*names, self.name))

    def leaving(self, topic: str, properties: Properties) -> Properties:
        """Returns the properties of a leaving message under this local topic, without those that belong to a
        connection.
        """
        return _stamped(properties, (self.name, *self._also(topic)))


def passed_by(user: UserProperties) -> list[str]:
    """Returns the names of the brokers a message has passed, in order."""
    return [value for name, value in user if name == MARK]


def stamped(user: UserProperties, names: Iterable[str]) -> UserProperties:
    """Returns user properties with marks of these brokers added."""
    passed = passed_by(user)
    return (*user, *((MARK, name) for name in names if name not in passed))


def _stamped(properties: Properties, names: Iterable[str]) -> Properties:
    return replace(properties, user=stamped(properties.user, names), topic_alias=None, subscription_ids=())


def remote_name(settings: BridgeSettings, machine: str) -> str:
    """Returns the name in marks of a broker that does not state its own: as configured, else from its first address.

    Two gateways with a bridge to the same address mean the same broker, so that each message goes there once. A
    loopback address means a broker of this `machine`. The address itself is disclosed to no broker.
    """
    if settings.broker:
        return settings.broker
    address = settings.addresses[0]
    host = split_host_port(address)[0]
    place = f"{machine} {address}" if host == "localhost" or host.startswith("127.") or host == "::1" else address
    return f"at-{sha256(place.encode()).hexdigest()[:16]}"
