"""Retained values of both brokers made equal after a bridge has connected.

Outwards: our broker sends the bridge all retained values anew, behind what waited, and keeps a change of one for it
whatever its QoS. Inwards: the bridge subscribes anew, on which the other broker sends all of its. Values that are here
already go no further; of a topic that changed here meanwhile ours counts. A value that the bridge had brought and that
does not come any more was cleared there, and is cleared here, unless the other broker has lost our session: then it
began anew, tells nothing by what it lacks, and gets back what had come from it. No I/O; the bridge keeps the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from gateway.bridging.mapping import Topics, passed_by
from gateway.mqtt5.message import Message

QUIET_S = 2.0
"""So long no retained value has come: all have. What comes later is set again, so that an error does not last."""


class RetainedTable(Protocol):
    """Retained messages of our broker."""

    def retained(self, topic_filter: str) -> Iterator[Message]: ...
    def retained_waiting(self, bridge: str) -> Iterable[str]:
        """Topics of which a new value, or none, waits for the bridge of this name."""
        ...


class RetainedState:
    """What is compared after one connection to the other broker. `ends_at`: when that is over, in the loop's seconds;
    None: it is."""

    def __init__(self, bridge: str, kept: RetainedTable, topics: Topics) -> None:
        self._bridge, self._kept, self._topics = bridge, kept, topics
        self.ends_at: float | None = None
        self._changed: frozenset[str] = frozenset()
        self._missing: set[str] = set()
        self.brought: list[Message] = []
        """Retained here, and come from the other broker."""

    def begin(self, remote: str, has_session: bool, now: float) -> None:
        """The other broker, of this name, is connected and sends its retained values."""
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
        """The connection is gone."""
        self.ends_at = None

    def is_known(self, topic: str, payload: bytes, now: float) -> bool:
        """Returns whether a retained message that comes, under its name here, changes nothing."""
        if self.ends_at is None:
            return False
        self.ends_at = now + QUIET_S
        self._missing.discard(topic)
        if topic in self._changed:
            return True
        held = next(self._kept.retained(topic), None)
        return held.payload == payload if held is not None else not payload

    def end(self) -> list[str]:
        """Returns topics that are cleared at the other broker and not here."""
        self.ends_at, self.brought = None, []
        missing, self._missing = self._missing - self._changed, set()
        return [topic for topic in sorted(missing) if next(self._kept.retained(topic), None) is not None]
