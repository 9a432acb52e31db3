"""Interfaces between the broker and the overlay. Types only; `gateway/overlay/driver.py` implements `OverlayPort`.

All methods are called on the event loop and must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from bridge.contract import Publication, UserProperties
from bridge.predicates import Predicate
from bridge.traces import EntityConnected, EntityGone, EntitySeen
from gateway.base import Figures
from gateway.mqtt5.message import Message
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
    "Past",
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
    """Refusal of a member's PUBLISH, in place of an acknowledgement."""

    code: int
    properties: Properties


@value
class LocalGroup:
    """Shared group that has local members. `is_whole`: one of them may receive every topic the filter matches.
    `owner`: the user of the member that joined, else of its first one, or the address of a nameless one; the group
    may be counted for that owner.
    """

    name: str
    filter: str
    is_whole: bool
    owner: str


class OverlayPort(Protocol):
    """Carrier of publications beyond the broker, as the broker sees it. Absent: a plain broker."""

    def publish(self, client_id: str, publication: Publication, done: Done) -> bool:
        """Takes every authorised PUBLISH and will of a local client, before any local delivery. False: the topic is
        local.

        True: the publication is taken, and `done(code)` is called once when PUBACK or PUBREC may go; a code >= 0x80
        refuses it (clients below MQTT 5 are disconnected and will repeat it). If `done` is called with such a code
        before this method returns, no local client gets the publication either.
        """
        ...

    def publish_run(self, client_id: str, run: Sequence[Publication], done: Done) -> int:
        """Takes leading publications of QoS 1 of a local client, none of them with retain flag or properties, as
        `publish` does. Returns how many: `done(code)` is called once for all of these, later. The next one is for
        `publish`.
        """
        ...

    def filter_subscribed(self, topic_filter: str, wanted: Predicate | None = None, /) -> bool | None:
        """Takes the first local subscription of a filter, share prefix stripped, and every one where clients may have
        predicates. `wanted` None: all content. Returns False if the overlay cannot take the subscription: it is
        refused (0x80).
        """
        ...

    def filter_unsubscribed(self, topic_filter: str, /) -> None:
        """Takes the end of the last local subscription of a filter."""
        ...

    def recognise(self, certificate_der: bytes, client_id: str) -> str | None:
        """Returns the name of the member with this certificate; None refuses the connection (0x87)."""
        ...

    def peer_connected(self, peer: str, session: ServerSession) -> None:
        """Takes the connection of a member; called again for every connection, also of a session living on."""
        ...

    def peer_disconnected(self, peer: str) -> None:
        """Takes the end of a member's session: with its connection, or when it expired."""
        ...

    def peer_published(self, peer: str, publish: Publish) -> Callable[[Done], bool] | PeerRefusal | None:
        """Takes a PUBLISH of a member, alias resolved. None: it is acknowledged now; a refusal: it is refused now.

        Otherwise the returned function is called at once with the callback acknowledging later; if it returns False,
        nothing is read from the member until then.
        """
        ...

    def entity_event(self, event: EntityEvent) -> None: ...


class Past(Protocol):
    """A history that local clients may read: the overlay's, or the broker's own."""

    @property
    def has_history(self) -> bool:
        """True if local clients may read a history."""
        ...

    def read_again(
        self,
        topic_filter: str,
        since_ms: int,
        give: Callable[[Publication], Coroutine[None, None, None] | None],
        has_room: Callable[[], bool],
        done: Callable[[], None],
        owner: str,
    ) -> Callable[[], None]:
        """Reads the past of a filter for a local client; `done` is called when nothing of it is left. Returns a
        function ending the reading. `give` may return the rest of its work, for which later publications wait.
        `owner`: the user of the client, or the address of a nameless one.
        """
        ...


class Constraining(Protocol):
    """Constrained topics (B2): enforced wherever a client names one. Absent: they are ordinary topics."""

    def admit(self, topic: str, client_id: str, *, publishes: bool) -> tuple[str, bool]:
        """Returns the spelling under which a name or filter is routed, and True if the client may publish or
        subscribe.
        """
        ...

    def publishing(self, client_id: str, publish: Publish) -> bool:
        """True if a client may publish; sets the topic of the PUBLISH to the spelling under which it is routed."""
        ...

    def willing(self, client_id: str, will: Will) -> tuple[Will, bool]:
        """Returns a client's will in the routed spelling, and True if it may be published."""
        ...

    def take_plain(self, client_id: str, publish: Publish) -> bool:
        """Takes a client's plain QoS 0 PUBLISH before `publishing`. True: the work of `publishing` and `take_accepted`
        is done, and no other client gets the message. False: nothing is done.
        """
        ...

    def take_accepted(self, client_id: str, publish: Publish) -> bool:
        """Takes an accepted PUBLISH of a client. True: the message is for the broker, and no client may receive it."""
        ...

    def take_arrival(self, publication: Publication) -> bool:
        """Takes a publication for local clients, from the overlay or from this broker. True: it is for this broker
        alone.
        """
        ...

    def willed(self, client_id: str, will: Will) -> None:
        """Takes a client's will that is published."""
        ...

    def fleet_view(self, group: str, limit: int) -> dict[str, object]:
        """Returns the states of traced entities, for a page; empty if these are not kept."""
        ...

    def entity_event(self, event: EntityEvent) -> None: ...

    def ending(self) -> None: ...


class Circling(Protocol):
    """Copies that bridges bring (`gateway/bridging/circles.py`). Absent: this broker has no part in a circle."""

    @property
    def name(self) -> str:
        """The name of this broker in marks."""
        ...

    def drops_publish(self, client_id: str, bridge: str | None, publish: Publish) -> bool:
        """True if a client's PUBLISH is a copy to drop. `bridge`: see `Client.bridge`."""
        ...

    def given(self, client_id: str, bridge: str, message: Message) -> Message:
        """Takes a message for the bridge of another broker; returns it as that bridge gets it."""
        ...

    def drops_arrival(self, topic: str, payload: bytes, user: UserProperties, group: str = "") -> bool:
        """True if a publication from the overlay is a copy to drop; `group`: for this shared group alone."""
        ...

    def crossing(self, topic: str, user: UserProperties) -> UserProperties:
        """Returns the user properties with which a message goes over the overlay; the given object if there is nothing
        to add.
        """
        ...


@runtime_checkable
class Measured(Protocol):
    """An `OverlayPort` that counts: shown to Prometheus. `gauges`: name -> value at this moment."""

    figures: Figures

    def gauges(self) -> dict[str, int]: ...


class SharedSubscriptions(Protocol):
    """Optional methods of an `OverlayPort` sharing groups with other gateways."""

    def group_joined(self, group: LocalGroup) -> None:
        """Takes a shared group with local members, after `filter_subscribed`; again when a member or a right came or
        went.
        """
        ...

    def group_left(self, group: str, topic_filter: str) -> None:
        """Takes the end of a group's last local member, before `filter_unsubscribed`."""
        ...


class Accepted(Protocol):
    """Optional methods of an `OverlayPort` whose members must know the local subscriptions."""

    def when_accepted(self, topic_filters: Sequence[str], done: Callable[[], None]) -> bool:
        """Calls `done` once the members know these filters, share prefixes stripped. False: there is nothing to wait
        for.
        """
        ...

    def unsettled(self, topic_filters: Sequence[str]) -> list[str]:
        """Returns clear filters of scopes with retained values under way, among the scopes of the given filters."""
        ...

    def when_settled(self, scopes: Collection[str], done: Callable[[], None]) -> bool:
        """Calls `done` once the retained values of the scopes are here, or after the longest wait. False: there is no
        wait, and no call.
        """
        ...


class LocalBroker(Protocol):
    """Methods of `EdgeBroker` an overlay needs."""

    def deliver_local(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None: ...

    def deliver_run(self, publications: Sequence[Publication]) -> None:
        """Delivers publications in order, with the effect of `deliver_local` for each."""
        ...

    def deliver_stored(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """Delivers a publication that replicas had retained: to new subscriptions it is a retained message."""
        ...

    def deliver_shared(self, name: SharedName, publication: Publication) -> None: ...

    def send_to_peer(self, peer: str, topic: str, payload: bytes, properties: UserProperties, on_ack: Done) -> bool: ...

    def kept_rows(self) -> Mapping[bytes, bytes]:
        """Returns the rows an earlier process passed to `keep_rows`."""
        ...

    def retained_payloads(self, topic_filter: str) -> Sequence[tuple[str, bytes]]:
        """Returns topics and payloads of messages retained for local clients."""
        ...

    def keep_rows(self, rows: Sequence[tuple[bytes, bytes | None]], is_patient: bool = False) -> None:
        """Writes these rows in a single transaction with all deliveries since the last one; None: the row is
        deleted. `is_patient`: with the next patient call of `when_kept`.
        """
        ...

    def when_kept(self, done: Callable[[], None], is_patient: bool = False) -> None:
        """Calls `done` when all deliveries to be kept until now are on disk; never, if they cannot be written.
        `is_patient`: with others, a second later at most.
        """
        ...

    def local_filters(self) -> Sequence[str]: ...

    def end_unreadable(self, may: Callable[[str], bool]) -> None:
        """Ends local subscriptions whose filter, share prefix stripped, `may` denies, and disconnects their clients
        (0x87).
        """
        ...

    def wanted_of(self, topic_filter: str) -> Predicate | None:
        """Returns a predicate covering all local subscriptions of a filter. None: all content."""

    def narrowed(self) -> Sequence[str]:
        """Returns a few of the filters that lost a subscription since the last call, while some have predicates."""
        ...

    def local_groups(self) -> Sequence[LocalGroup]: ...
