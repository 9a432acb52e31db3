"""Each message once, whatever circles and double links bridges make: what a broker asks of what comes and goes.

Marks (`mapping`) say exactly which brokers a message has passed. Where they do not go, and where two ways bring one
message, `twins` tells copies by what they hold. The broker asks `Circles` about its clients and the overlay, and each
bridge about what it takes. No I/O; the clock is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from gateway.bridging.mapping import Marks, passed_by, stamped
from gateway.bridging.twins import ECHO_S, TWIN_S, UNMARKED, Twins
from gateway.mqtt5.packets import Properties, Publish, UserProperties

OF_CLIENT, OF_BRIDGE = "3.x client", "3.x bridge"
"""Where a message without marks came from: the bridge of another broker here, or ours there. The copy of one comes by
the other; two clients of ours are no two ways to one broker."""


class CarryingBridge(Protocol):
    """A bridge, as the others ask of it."""

    @property
    def remote(self) -> str: ...
    def carries(self, topic: str, user: UserProperties) -> str | None: ...


class Circles:
    """What one broker knows of ways in and out. `bridges`: its own, in the order of the configuration."""

    def __init__(self, marks: Marks, now: Callable[[], float]) -> None:
        self.marks, self._now = marks, now
        self._twins = Twins()
        self.bridges: list[CarryingBridge] = []
        self.ended = 0
        """Messages that were copies, or had been here."""

    @property
    def name(self) -> str:
        """What this broker is called in marks."""
        return self.marks.name

    def came(self, client_id: str, bridge: str | None, publish: Publish) -> bool:
        """Returns whether the PUBLISH of a client is for nobody: it has been here, or is a copy. `bridge`: as in
        `bridge_clients.bridge_name`. What comes without marks gets one that says so."""
        passed = passed_by(publish.properties.user)
        if bridge is None and not passed:
            return False
        known, meets = (OF_CLIENT, OF_BRIDGE) if bridge == "" else ("", "")
        if bridge == "":
            publish.properties = replace(publish.properties, user=stamped(publish.properties.user, (UNMARKED,)))
        return self._ends(f"client {client_id}", publish.topic, publish.payload, publish.properties, known, meets)

    def entered(self, bridge: str, topic: str, payload: bytes, properties: Properties, has_marks: bool) -> bool:
        """Returns the same of what a bridge of ours brings; `properties` tell of the other broker already."""
        known, meets = ("", "") if has_marks else (OF_BRIDGE, OF_CLIENT)
        return self._is_copy(f"bridge {bridge}", topic, payload, properties.user, known, meets)

    def arrived(self, topic: str, payload: bytes, user: UserProperties, group: str = "") -> bool:
        """Returns the same of what comes over the overlay; `group`: it is for this shared group alone."""
        passed = passed_by(user)
        if not passed:
            return False
        if self.name in passed:
            self.ended += 1
            return True
        return self._is_copy(f"overlay {passed}", f"{group}\0{topic}" if group else topic, payload, user, "", "")

    def left(self, bridge: str, topic: str, payload: bytes, has_marks: bool, echoes: bool) -> None:
        """Remembers what leaves over a bridge. `echoes`: the other broker sends it back to us."""
        way = f"to {bridge}" if echoes else f"bridge {bridge}"
        self._twins.left(way, topic, payload, self._now(), has_marks, ECHO_S if echoes else TWIN_S)

    def given(self, client_id: str, bridge: str, topic: str, payload: bytes) -> None:
        """Remembers what the bridge of another broker got from us."""
        self._twins.left(f"client {client_id}", topic, payload, self._now(), has_marks=bridge != "")

    def crossing(self, topic: str, user: UserProperties) -> UserProperties:
        """Returns what a message carries over the overlay: also to which brokers we bring it ourselves."""
        carrying = [one.remote for one in self.bridges if one.carries(topic, user) is not None]
        return stamped(user, carrying) if carrying else user

    def carried_before(self, bridge: CarryingBridge, topic: str, user: UserProperties, there: str) -> bool:
        """Returns whether a bridge before this one brings the message to the same broker under the same name."""
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
