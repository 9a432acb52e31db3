"""Topic aliases of a connection, in both directions (MQTT 5.0 §3.3.2.3.4). No bytes, no I/O."""

from __future__ import annotations

from gateway.mqtt5.flows import NONE
from gateway.mqtt5.types import ProtocolViolation, TopicAliasInvalid


class InboundAliases:
    """Aliases the peer defined on this connection, 1..`maximum` of them (§3.3.2.3.4)."""

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._topics: dict[int, str] = NONE

    def resolve(self, topic: str, alias: int) -> str:
        """Returns the topic of a PUBLISH with `alias`, and remembers a new meaning.

        Raises TopicAliasInvalid (out of range) or ProtocolViolation (an alias without a topic).
        """
        if not 0 < alias <= self.maximum:
            raise TopicAliasInvalid(f"topic alias {alias} exceeds {self.maximum}")
        if topic:
            if self._topics is NONE:
                self._topics = {}
            self._topics[alias] = topic
            return topic
        known = self._topics.get(alias)
        if known is None:
            raise ProtocolViolation(f"topic alias {alias} was never defined")
        return known


class OutboundAliases:
    """Aliases that this side defined on the connection: the first `maximum` long topics get an alias and keep it.

    No alias changes its meaning: where topics alternate, a change would save nothing.
    """

    __slots__ = ("_aliases", "maximum")

    SHORTEST_TOPIC = 4  # an alias costs three bytes in every packet

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._aliases: dict[str, int] = {}

    def look_up(self, topic: str) -> tuple[int, bool]:
        """Returns (alias or 0, True if new). A new alias counts only after `define`, once its packet is sure to go."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return alias, False
        if len(self._aliases) < self.maximum and len(topic) >= self.SHORTEST_TOPIC:
            return len(self._aliases) + 1, True
        return 0, False

    def define(self, topic: str, alias: int) -> None:
        self._aliases[topic] = alias


NO_INBOUND, NO_OUTBOUND = InboundAliases(0), OutboundAliases(0)
"""Shared by all connections without aliases, which are most."""
