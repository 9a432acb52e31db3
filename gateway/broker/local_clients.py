"""Local clients of a broker for its overlay: to deliver, to send to members, to keep the overlay's rows.

The reports of the broker to the overlay are in `exchange.py`, `subscribing.py` and `lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from bridge.contract import Publication, UserProperties
from bridge.predicates import Predicate
from gateway.broker.exchange import Exchange
from gateway.broker.lifecycle import Lifecycle
from gateway.broker.member_sessions import send as send_to_member
from gateway.clients import Done, LocalGroup, PeerMessage, SharedName, message_of
from gateway.mqtt5.packets import Properties
from gateway.mqtt5.types import ReasonCode
from gateway.sessions import SessionStore

NARROWED_AT_ONCE = 8
"""Filters whose cover is made anew each time: more would take too many milliseconds."""


class LocalClients:
    """The local clients of a broker, as the overlay sees them: a `clients.LocalBroker`."""

    def __init__(self, exchange: Exchange, lifecycle: Lifecycle) -> None:
        self._exchange, self._lifecycle = exchange, lifecycle
        self.store: SessionStore | None = None
        """The store of the overlay's rows; None: a broker without a data directory keeps none."""
        self.is_ending = False
        """True once the broker ends: later publications are not acknowledged, and come again."""

    def deliver_local(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """Routes a publication of the overlay to local clients and the retained store, never back. `groups_lost`:
        shared groups left out. Raises `bridge.base.topics.TopicError` for an invalid topic.
        """
        if not self.is_ending:
            self._exchange.deliver_local(publication, groups_lost)

    def deliver_run(self, publications: Sequence[Publication]) -> None:
        """Routes publications of the overlay in order, with the effect of `deliver_local` for each."""
        if not self.is_ending:
            self._exchange.deliver_run(publications)

    def deliver_stored(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """Routes a publication that replicas had retained when they sent it."""
        if not self.is_ending:
            self._lifecycle.subscribing.retained.deliver_stored(publication, groups_lost)

    def deliver_shared(self, name: SharedName, publication: Publication) -> None:
        """Routes a publication of the overlay to a local shared group only."""
        circles, user = self._exchange.delivery.circles, publication.properties
        if (
            user
            and circles is not None
            and circles.drops_arrival(publication.topic, publication.payload, user, name[0])
        ):
            return
        if not self.is_ending:
            self._lifecycle.subscribing.give_shared(name, message_of(publication, self._exchange.now()))

    def send_to_peer(self, peer: str, topic: str, payload: bytes, properties: UserProperties, on_ack: Done) -> bool:
        """Sends a QoS 1 PUBLISH to a member; calls `on_ack(code)` at its acknowledgement, maybe on a later connection.

        False, and nothing was sent: the member has no session, its queue (`limits.member_queue_*`) is full, or the
        message is too large for it. When its session ends, outstanding acknowledgements never come.
        """
        client = self._lifecycle.peers.get(peer)
        if client is None:
            return False
        message = PeerMessage(topic, payload, 1, properties=Properties(user=properties))
        message.on_ack = on_ack
        return send_to_member(client, message, self._exchange.now(), self._exchange.reached)

    def kept_rows(self) -> Mapping[bytes, bytes]:
        """Returns the rows an earlier process passed to `keep_rows`."""
        return self.store.kept if self.store is not None else {}

    def retained_payloads(self, topic_filter: str) -> list[tuple[str, bytes]]:
        """Returns topics and payloads of messages retained for local clients."""
        found = self._exchange.retained.matching(topic_filter, self._exchange.now())
        return [(message.topic, message.payload) for message in found]

    def keep_rows(self, rows: Sequence[tuple[bytes, bytes | None]], is_patient: bool = False) -> None:
        """Writes these rows of the overlay in a single transaction with all deliveries since the last one.
        `is_patient`: with the next patient call of `when_kept`.
        """
        if self.store is not None:
            self.store.keep_rows(rows, is_patient)

    def when_kept(self, done: Callable[[], None], is_patient: bool = False) -> None:
        """Calls `done` when all deliveries to be kept until now are on disk; never, if they cannot be written.
        `is_patient`: with others, half a second later at most.

        Also waits, for a short time, for local receivers that are behind: this slows down the senders.
        """
        holding, store = self._exchange.holding, self.store
        if receivers := holding.burdened():
            kept = done if store is None else partial(store.when_written, done)
            holding.until_all_taken(receivers, kept, is_brief=True)
        elif store is not None:
            store.when_written(done, is_patient)
        else:
            done()

    def local_filters(self) -> list[str]:
        """Returns the distinct filters of local clients, share prefixes stripped."""
        return self._exchange.delivery.router.filters()

    def end_unreadable(self, may: Callable[[str], bool]) -> None:
        """Ends local subscriptions whose filter, share prefix stripped, `may` denies, and disconnects their clients
        (0x87): MQTT has no other way to tell them.
        """
        for client in list(self._lifecycle.clients.values()):
            if (
                client.peer is None
                and not client.view.is_internal
                and self._lifecycle.subscribing.end_denied(client, may)
            ):
                self._lifecycle.dismiss(client, ReasonCode.NOT_AUTHORIZED)

    def wanted_of(self, topic_filter: str) -> Predicate | None:
        """Returns a predicate covering all local subscriptions of a filter. None: all content."""
        return self._exchange.delivery.router.wanted_of(topic_filter)

    def narrowed(self) -> list[str]:
        """Returns a few of the filters that lost a subscription since the last call, while some have predicates."""
        left = self._exchange.delivery.router.narrowed
        return [left.pop() for _ in range(min(NARROWED_AT_ONCE, len(left)))]

    def local_groups(self) -> list[LocalGroup]:
        """Returns shared groups that have local members, by the rights of this moment."""
        return self._lifecycle.subscribing.local_groups()
