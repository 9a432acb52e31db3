"""What the broker tells the overlay, and asks of it. Types only; `gateway/overlay/driver.py` implements `OverlayPort`.

All methods are called on the event loop and must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from bridge.contract import Publication, UserProperties
from bridge.predicates import Predicate
from bridge.traces import EntityConnected, EntityGone, EntitySeen
from gateway.base import Figures
from gateway.mqtt5.packets import Properties, Publish, Will
from gateway.mqtt5.session import ServerSession
from keys.values import value

__all__ = [
    "Accepted",
    "Circling",
    "Constraining",
    "Done",
    "EntityConnected",
    "EntityEvent",
    "EntityGone",
    "EntitySeen",
    "LocalBroker",
    "LocalGroup",
    "Measured",
    "OverlayPort",
    "PeerRefusal",
    "SharedName",
    "SharedSubscriptions",
]

SharedName: TypeAlias = tuple[str, str]
"""Name and filter of a shared group, without prefix."""
Done: TypeAlias = Callable[[int], None]
"""Called once with an MQTT reason code."""


EntityEvent: TypeAlias = EntityConnected | EntitySeen | EntityGone


@value
class PeerRefusal:
    """What a member's PUBLISH is answered with instead of an acknowledgement."""

    code: int
    properties: Properties


@value
class LocalGroup:
    """A shared group that has local members. `is_whole`: one of them may receive all that the filter matches. `owner`:
    the client id of its first member, for whom it is held."""

    name: str
    filter: str
    is_whole: bool
    owner: str


class OverlayPort(Protocol):
    """The broker's view of whatever carries publications beyond it. Absent: a plain broker."""

    def publish(self, client_id: str, publication: Publication, done: Done) -> bool:
        """Every authorised PUBLISH and will of a local client, before anybody here gets it. False: the topic is local.

        True: it is taken, and `done(code)` is called once when PUBACK or PUBREC may go; a code >= 0x80
        refuses it (clients below MQTT 5 are disconnected and will repeat it). If it is called with one before this
        returns, nobody here gets the publication either.
        """
        ...

    def subscribed(self, topic_filter: str, wanted: Predicate | None = None, /) -> bool | None:
        """Takes the first local subscription of a filter, share prefix stripped, and every one where clients may have
        predicates. `wanted` None: it wants everything. Returns False where it cannot be taken: it is refused (0x80)."""
        ...

    def unsubscribed(self, topic_filter: str, /) -> None:
        """The last local subscription of a filter is gone."""
        ...

    def recognise(self, certificate_der: bytes, client_id: str) -> str | None:
        """Name of the member whose certificate this is; None refuses the connection (0x87)."""
        ...

    def peer_connected(self, peer: str, session: ServerSession) -> None:
        """A member connected; called again for every connection, also of a session that lives on."""
        ...

    def peer_disconnected(self, peer: str) -> None:
        """The member's session has ended: with its connection, or when it expired."""
        ...

    def peer_published(self, peer: str, publish: Publish) -> Callable[[Done], bool] | PeerRefusal | None:
        """A PUBLISH of a member, alias resolved. None: it is acknowledged now; a refusal: it is refused now.

        Else the answer is called at once with what acknowledges it later; False: read nothing of the member until then.
        """
        ...

    def entity_event(self, event: EntityEvent) -> None: ...


class Constraining(Protocol):
    """Constrained topics (B2): enforced wherever a client names one. Absent: they are ordinary topics."""

    def admit(self, topic: str, client_id: str, *, publishes: bool) -> tuple[str, bool]:
        """The spelling under which a name or filter is routed, and whether the client may publish or subscribe."""
        ...

    def publishing(self, client_id: str, publish: Publish) -> bool:
        """Whether a client may; the PUBLISH gets the spelling under which it is routed."""
        ...

    def willing(self, client_id: str, will: Will) -> tuple[Will, bool]:
        """A client's will in that spelling, and whether it may be published."""
        ...

    def answered(self, client_id: str, publish: Publish) -> bool:
        """A client's plain QoS 0 PUBLISH, not asked about before. True: all is done that `publishing` and `heard` would
        have, and it is for nobody else. False: nothing is done."""
        ...

    def heard(self, client_id: str, publish: Publish) -> bool:
        """A client's PUBLISH that is accepted. True: it was said to the broker, and nobody else may hear it."""
        ...

    def arrived(self, publication: Publication) -> bool:
        """A publication that is for local clients, over the overlay or our own. True: it is for nobody but us."""
        ...

    def willed(self, client_id: str, will: Will) -> None:
        """A client's will that is published."""
        ...

    def fleet_view(self, group: str, limit: int) -> dict[str, object]:
        """How traced entities stand, for a page; empty where that is not kept."""
        ...

    def entity_event(self, event: EntityEvent) -> None: ...

    def ending(self) -> None: ...


class Circling(Protocol):
    """Copies that bridges bring (`gateway/bridging/circles.py`). Absent: this broker has no part in a circle."""

    @property
    def name(self) -> str:
        """What this broker is called in marks."""
        ...

    def came(self, client_id: str, bridge: str | None, publish: Publish) -> bool:
        """Whether a client's PUBLISH is for nobody. `bridge`: as `Client.bridge`."""
        ...

    def given(self, client_id: str, bridge: str, topic: str, payload: bytes) -> None:
        """The bridge of another broker gets a message."""
        ...

    def arrived(self, topic: str, payload: bytes, user: UserProperties, group: str = "") -> bool:
        """Whether what came over the overlay is for nobody; `group`: for this shared group alone."""
        ...

    def crossing(self, topic: str, user: UserProperties) -> UserProperties:
        """User properties with which a message goes over the overlay; these very ones if there is nothing to add."""
        ...


@runtime_checkable
class Measured(Protocol):
    """An `OverlayPort` that counts: shown to Prometheus. `gauges`: name -> what is so at this moment."""

    figures: Figures

    def gauges(self) -> dict[str, int]: ...


class SharedSubscriptions(Protocol):
    """Optional methods of an `OverlayPort` that shares groups with other gateways."""

    def group_joined(self, group: LocalGroup) -> None:
        """A shared group has local members; after `subscribed`. Told again when a member or a right came or went."""
        ...

    def group_left(self, group: str, topic_filter: str) -> None:
        """The last one is gone; before `unsubscribed`."""
        ...


class Accepted(Protocol):
    """Optional methods of an `OverlayPort` whose members have to hear of what is subscribed to here."""

    def when_accepted(self, topic_filters: Sequence[str], done: Callable[[], None]) -> bool:
        """Call `done` once they know of these filters, share prefixes stripped. False: there is nothing to wait for."""
        ...

    def unsettled(self, topic_filters: Sequence[str]) -> list[str]:
        """Returns clear filters of scopes with retained values under way, among the scopes of the given filters."""
        ...

    def when_settled(self, scopes: Collection[str], done: Callable[[], None]) -> bool:
        """Calls `done` once the retained values of the scopes are here, or after the longest wait. False: not."""
        ...


class LocalBroker(Protocol):
    """What an overlay needs of `EdgeBroker`."""

    def deliver_local(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None: ...

    def deliver_stored(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """The same for a publication that replicas had retained: to new subscriptions it is a retained message."""
        ...

    def deliver_shared(self, name: SharedName, publication: Publication) -> None: ...

    def send_to_peer(self, peer: str, topic: str, payload: bytes, properties: UserProperties, on_ack: Done) -> bool: ...

    def kept(self) -> Mapping[bytes, bytes]:
        """Rows that an earlier process was given to `keep`."""
        ...

    def retained(self, topic_filter: str) -> Sequence[tuple[str, bytes]]:
        """Topics and payloads of what is retained for local clients."""
        ...

    def keep(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write these in one transaction with what was delivered since the last one; None: the row is gone."""
        ...

    def when_kept(self, done: Callable[[], None]) -> None:
        """Call when all that was delivered and is to be kept until now is on disk; never, if that cannot be."""
        ...

    def local_filters(self) -> Sequence[str]: ...

    def wanted_of(self, topic_filter: str) -> Predicate | None:
        """The cover of what local clients want of a filter. None: everything."""

    def narrowed(self) -> Sequence[str]:
        """A few of the filters of which somebody left since this was asked last, while some have predicates."""
        ...

    def local_groups(self) -> Sequence[LocalGroup]: ...
