"""Comparison of the retained values of both brokers after a bridge has connected, which makes them equal.

Outwards: the local broker sends the bridge all retained values anew, behind waiting messages, and keeps a change of a
value for the bridge at any QoS. Inwards: the bridge subscribes anew, and the other broker sends all of its values.
Values already here go no further; if a topic changed here meanwhile, the local value counts. A value the bridge had
brought and that no longer comes was cleared there, and is cleared here. If the other broker has lost the session, it
began anew: missing values then mean nothing, and it gets back the values that had come from it. No I/O; the bridge
keeps the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from gateway.bridging.mapping import Topics, passed_by
from gateway.mqtt5.message import Message

QUIET_S = 2.0
"""Seconds without a retained value after which all have come. A later value is set again, so that an error does not
last.
"""


class RetainedTable(Protocol):
    """Retained messages of the local broker."""

    def retained(self, topic_filter: str) -> Iterator[Message]: ...
    def retained_waiting(self, bridge: str) -> Iterable[str]:
        """Returns topics of which a new value, or none, waits for the bridge of this name."""
        ...


class RetainedState:
    """Comparison after a single connection to the other broker. `ends_at`: its end, in the loop's seconds; None: it is
    over.
    """

    def __init__(self, bridge: str, kept: RetainedTable, topics: Topics) -> None:
        self._bridge, self._kept, self._topics = bridge, kept, topics
        self.ends_at: float | None = None
        self._changed: frozenset[str] = frozenset()
        self._missing: set[str] = set()
        self.brought: list[Message] = []
        """Messages retained here that came from the other broker."""

    def begin_comparison(self, remote: str, has_session: bool, now: float) -> None:
        """Begins the comparison: the other broker, of this name, is connected and sends its retained values."""
        self.ends_at = now + QUIET_S
        self._changed = frozenset(self._kept.retained_waiting(self._bridge))
        self.brought = [
            message
            for topic_filter in self._topics.local_in()
            for message in self._kept.retained(topic_filter)
            if remote in passed_by(message.properties.user)
        ]
        self._missing = {message.topic for message in self.brought} if has_session else set()

    def stop(self) -> None:
        """Stops the comparison: the connection is gone."""
        self.ends_at = None

    def is_known(self, topic: str, payload: bytes, now: float) -> bool:
        """Returns True if an arriving retained message, under its name here, changes nothing."""
        if self.ends_at is None:
            return False
        self.ends_at = now + QUIET_S
        self._missing.discard(topic)
        if topic in self._changed:
            return True
        held = next(self._kept.retained(topic), None)
        return held.payload == payload if held is not None else not payload

    def end_comparison(self) -> list[str]:
        """Returns topics that are cleared at the other broker and not here."""
        self.ends_at, self.brought = None, []
        missing, self._missing = self._missing - self._changed, set()
        return [topic for topic in sorted(missing) if next(self._kept.retained(topic), None) is not None]
