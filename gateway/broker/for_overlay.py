"""What the overlay asks of a broker (`clients.LocalBroker`): to deliver, to send to members, to keep what it remembers.

A base of `EdgeBroker`, whose parts it uses. What the broker tells the overlay is in `exchange.py`, `subscribing.py` and
`lifecycle.py`.
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
from gateway.sessions import SessionStore

NARROWED_AT_ONCE = 8
"""Filters whose cover is made anew each time: that takes milliseconds."""


class ForOverlay:
    """See the module."""

    exchange: Exchange
    lifecycle: Lifecycle
    _store: SessionStore | None
    _is_ending = False

    def now(self) -> float:
        """Seconds since the UNIX epoch."""
        raise NotImplementedError

    def deliver_local(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """Route a publication of the overlay to local clients and the retained store, never back. `groups_lost`: but
        not to these shared groups. Raises `bridge.base.topics.TopicError` for an invalid topic."""
        if not self._is_ending:  # what comes now is not acknowledged, and comes again
            self.exchange.deliver_local(publication, groups_lost)

    def deliver_stored(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """The same for a publication that replicas had retained when they told us."""
        if not self._is_ending:
            self.lifecycle.subscribing.retained.deliver_stored(publication, groups_lost)

    def deliver_shared(self, name: SharedName, publication: Publication) -> None:
        """A publication of the overlay for one local shared group only."""
        circles, user = self.exchange.circles, publication.properties
        if user and circles is not None and circles.arrived(publication.topic, publication.payload, user, name[0]):
            return
        if not self._is_ending:
            self.lifecycle.subscribing.give_shared(name, message_of(publication, self.now()))

    def send_to_peer(self, peer: str, topic: str, payload: bytes, properties: UserProperties, on_ack: Done) -> bool:
        """QoS 1 PUBLISH to a member; `on_ack(code)` when it acknowledges, maybe on a later connection.

        False, and nothing was sent: it has no session, its queue (`limits.member_queue_*`) is full, or the
        message is too large for it. When its session ends, acknowledgements that are still out never come.
        """
        client = self.lifecycle.peers.get(peer)
        if client is None:
            return False
        message = PeerMessage(topic, payload, 1, properties=Properties(user=properties))
        message.on_ack = on_ack
        return send_to_member(client, message, self.now(), self.exchange.reached)

    def kept(self) -> Mapping[bytes, bytes]:
        """Rows that an earlier process was given to `keep`."""
        return self._store.kept if self._store is not None else {}

    def retained(self, topic_filter: str) -> list[tuple[str, bytes]]:
        """Topics and payloads of what is retained for local clients."""
        found = self.exchange.retained.matching(topic_filter, self.now())
        return [(message.topic, message.payload) for message in found]

    def keep(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write these rows of the overlay's in one transaction with what was delivered since the last one."""
        if self._store is not None:
            self._store.keep(rows)

    def when_kept(self, done: Callable[[], None]) -> None:
        """Call when all that was delivered and is to be kept until now is on disk; never, if that cannot be.

        Where local receivers are behind it waits for those, too, but not for long: that slows down whoever sends to us.
        """
        holding, kept = self.exchange.holding, done
        if self._store is not None:
            kept = partial(self._store.when_written, done)
        if receivers := holding.burdened():
            holding.until_all_taken(receivers, kept, is_brief=True)
        else:
            kept()

    def local_filters(self) -> list[str]:
        """Distinct filters that local clients hold, share prefixes stripped."""
        return self.exchange.router.filters()

    def wanted_of(self, topic_filter: str) -> Predicate | None:
        """The cover of what local clients want of a filter. None: everything."""
        return self.exchange.router.wanted_of(topic_filter)

    def narrowed(self) -> list[str]:
        """A few of the filters of which somebody left since this was asked last, while some have predicates."""
        left = self.exchange.router.narrowed
        return [left.pop() for _ in range(min(NARROWED_AT_ONCE, len(left)))]

    def local_groups(self) -> list[LocalGroup]:
        """Shared groups that have local members, by the rights of this moment."""
        return self.lifecycle.subscribing.local_groups()
