"""Detection of copies, so that each message is delivered once in all circles and double links of bridges.

Marks (`mapping`) name exactly the brokers a message has passed. Where marks are lost, and where two ways bring a
single message, `twins` detects copies by their content. The broker asks `Circles` about its clients and the overlay,
and each bridge asks about its messages. No I/O; the clock is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from gateway.bridging.mapping import Marks, passed_by, stamped
from gateway.bridging.twins import ECHO_S, TWIN_S, UNMARKED, Twins
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Properties, Publish, UserProperties

OF_CLIENT, OF_BRIDGE = "3.x client", "3.x bridge"
"""Origins of a message without marks: the bridge of another broker here, or this broker's bridge there.

The copy of a message from one origin comes by the other; two clients of this broker are not two ways to one broker.
"""


OTHERS_MAX = 4
"""Brokers that a leaving message names as reached by other bridges: a hub of many bridges names none, since each name
counts as a passed broker and makes the message longer.
"""


class CarryingBridge(Protocol):
    """Bridge, as other bridges see it."""

    @property
    def remote(self) -> str: ...
    def carries(self, topic: str, user: UserProperties) -> str | None: ...


class Circles:
    """Ways in and out of a broker. `bridges`: its own, in the order of the configuration."""

    def __init__(self, marks: Marks, now: Callable[[], float]) -> None:
        self.marks, self._now = marks, now
        self._twins = Twins()
        self.bridges: list[CarryingBridge] = []
        self.ended = 0
        """Number of messages dropped because they were copies, or had been here."""

    @property
    def name(self) -> str:
        """The name of this broker in marks."""
        return self.marks.name

    def drops_publish(self, client_id: str, bridge: str | None, publish: Publish) -> bool:
        """Returns True if the PUBLISH of a client is to be dropped: it has been here, or is a copy. `bridge`: see
        `bridge_clients.bridge_name`. A message without marks gets the mark UNMARKED.
        """
        passed = passed_by(publish.properties.user)
        if bridge is None and not passed:
            return False
        known, meets = (OF_CLIENT, OF_BRIDGE) if bridge == "" else ("", "")
        if bridge == "":
            publish.properties = replace(publish.properties, user=stamped(publish.properties.user, (UNMARKED,)))
        return self._ends(f"client {client_id}", publish.topic, publish.payload, publish.properties, known, meets)

    def entered(self, bridge: str, topic: str, payload: bytes, properties: Properties, has_marks: bool) -> bool:
        """Returns True if a message of this broker's bridge is to be dropped; `properties` name the other broker
        already.
        """
        known, meets = ("", "") if has_marks else (OF_BRIDGE, OF_CLIENT)
        return self._is_copy(f"bridge {bridge}", topic, payload, properties.user, known, meets)

    def drops_arrival(self, topic: str, payload: bytes, user: UserProperties, group: str = "") -> bool:
        """Returns True if a publication of the overlay is to be dropped; `group`: it is for this shared group
        alone.
        """
        passed = passed_by(user)
        if not passed:
            return False
        if self.name in passed:
            self.ended += 1
            return True
        return self._is_copy(f"overlay {passed}", f"{group}\0{topic}" if group else topic, payload, user, "", "")

    def remember_leaving(self, bridge: str, topic: str, payload: bytes, has_marks: bool, echoes: bool) -> None:
        """Remembers a message leaving over a bridge. `echoes`: the other broker sends it back."""
        way = f"to {bridge}" if echoes else f"bridge {bridge}"
        self._twins.remember_leaving(way, topic, payload, self._now(), has_marks, ECHO_S if echoes else TWIN_S)

    def given(self, client_id: str, bridge: str, message: Message) -> Message:
        """Remembers a message the bridge of another broker gets from this one; returns the message for that bridge,
        with the brokers that this broker's bridges reach.
        """
        topic, properties = message.topic, message.properties
        self._twins.remember_leaving(f"client {client_id}", topic, message.payload, self._now(), has_marks=bridge != "")
        others = self._others(bridge, topic, properties.user) if bridge else []
        if not others:
            return message
        return message.with_properties(replace(properties, user=stamped(properties.user, others)))

    def crossing(self, topic: str, user: UserProperties) -> UserProperties:
        """Returns the user properties of a message for the overlay, with the brokers to which this broker's bridges
        bring it.
        """
        carrying = [one.remote for one in self.bridges if one.carries(topic, user) is not None]
        return stamped(user, carrying) if carrying else user

    def leaving(self, bridge: CarryingBridge, topic: str, properties: Properties) -> Properties:
        """Returns the properties of a message leaving over a bridge, with the brokers that other bridges reach."""
        left = self.marks.leaving(topic, properties)
        others = self._others(bridge.remote, topic, properties.user)
        return replace(left, user=stamped(left.user, others)) if others else left

    def _others(self, remote: str, topic: str, user: UserProperties) -> list[str]:
        """Returns the names of brokers, except `remote`, to which this broker's bridges bring a message: a broker
        getting the message with these names does not bring it there once more.
        """
        names = {one.remote for one in self.bridges if one.remote != remote and one.carries(topic, user) is not None}
        return sorted(names) if len(names) <= OTHERS_MAX else []

    def carried_before(self, bridge: CarryingBridge, topic: str, user: UserProperties, there: str) -> bool:
        """Returns True if a bridge before this one brings the message to the same broker under the same name."""
        for one in self.bridges:
            if one is bridge:
                return False
            if one.remote == bridge.remote and one.carries(topic, user) == there:
                return True
        return False

    def _ends(self, way: str, topic: str, payload: bytes, properties: Properties, known: str, meets: str) -> bool:
        if self.marks.has_been(topic, properties):
            self.ended += 1
            return True
        return self._is_copy(way, topic, payload, properties.user, known, meets)

    def _is_copy(self, way: str, topic: str, payload: bytes, user: UserProperties, known: str, meets: str) -> bool:
        found = self._twins.is_copy(way, topic, payload, passed_by(user), self._now(), known, meets)
        self.ended += found
        return found
