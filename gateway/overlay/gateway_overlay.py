"""The overlay of a gateway: what local clients publish goes out sealed, what they subscribed to comes in.

Publications wait in the outbox (`outgoing`) until replicas have them; what other members publish is opened, put in
order and handed to local clients (`local_delivery`). Rights, retained values and histories are asked for here, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from bridge.base import matches, overlaps
from bridge.contract import (
    HISTORY_TOPIC,
    Acked,
    AskKept,
    Chain,
    Count,
    Deliver,
    DeliverShared,
    Event,
    GroupJoined,
    GroupLeft,
    KeepSealed,
    NotTaken,
    OnDisk,
    Publication,
    ReadAgainDone,
    ReadAgainLive,
    ReceiptCame,
    Reread,
    Restored,
    Subscribed,
    Unsubscribed,
)
from bridge.document import Overlay, RegionView, constrained
from bridge.node import GatewayNode
from bridge.predicates import Predicate
from bridge.traces import Announce, AvailabilityEffect, AvailabilityEvent
from gateway.base import Figures, ReaderState, ScopeSpan
from gateway.base.followed import FollowedMessages
from gateway.base.log_events import LogEvent
from gateway.base.spans import PublicationSpans
from gateway.client import MqttClient
from gateway.clients import LocalBroker, LocalGroup
from gateway.history import Give, Rereading
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import ReasonCode
from gateway.outbox import Outgoing, Store
from gateway.overlay.accepting import Accepting
from gateway.overlay.broker_overlay import BrokerOverlay
from gateway.overlay.dials import Dials
from gateway.overlay.driver import OfHistory, OfReceipts
from gateway.overlay.entities import LocalEntities
from gateway.overlay.local_delivery import LocalDelivery
from gateway.overlay.local_rights import LocalRights, ScopeRights
from gateway.overlay.member_files import Keeping
from gateway.overlay.reaching import HomeReaches
from gateway.overlay.reader_rows import ReaderRows
from gateway.overlay.receipt_topics import receipts_told
from gateway.overlay.settling import Settling
from gateway.overlay.wires import PACKET_TOO_LARGE
from gateway.overlay.withheld import Withheld
from gateway.receipts import ReceiptKeeper
from keys.envelope import Mode

ALONE_S = 0.015
"""A message that comes sooner behind the last of its replica is acknowledged soon: more may wait there."""
SMALL_BYTES = 1024  # payload, topic and filling zeros that every replica takes, with nothing else beside
CHAR_BYTES = 4  # of a topic, at most


class GatewayOverlay(BrokerOverlay):
    """The overlay of a gateway.

    `rows` seals the state of reading that is kept; `receipts` keeps signed receipts. `entities`: the availability of
    local clients; None: not told. `protected`, `plain`: clear filters whose topics the configuration sends through the
    overlay, sealed or in clear. Whatever a later policy says, they never stay local, and the protected ones never go in
    clear.
    """

    def __init__(
        self,
        node: GatewayNode,
        figures: Figures,
        store: Store,
        keeping: Keeping,
        dials: Dials,
        rows: ReaderRows,
        receipts: ReceiptKeeper,
        entities: LocalEntities | None = None,
        clock: Callable[[], float] = time.time,
        protected: Sequence[str] = (),
        plain: Sequence[str] = (),
        full_is_local: bool = False,
    ) -> None:
        super().__init__(node, figures, store, keeping, dials, clock)
        self._gateway, self._rows, self._receipts, self._entities = node, rows, receipts, entities
        self._rereading = Rereading(figures.name, self._handle, clock)
        self._reaches = HomeReaches(figures.name, lambda send: self.send_wire(send.peer, send.wire, 0), clock)
        figures.readers = self._readers
        self._outgoing = Outgoing(store, figures, self._driver.handle, self._chain_of, full_is_local=full_is_local)
        if entities is not None:
            entities.machine.reserve_topics(self.own_topics)
        self._shared = (*protected, *plain)
        self._rights = LocalRights(lambda: self._keeping.overlay, clock, plain, figures.name, protected)
        self._limits_of: RegionView | None = None  # whose packets are at most `_limit_bytes` long
        self._limit_bytes = 0
        self._withheld = Withheld(self._when_kept)
        self._came: dict[str, float] = {}  # by replica: when it sent last
        self._is_patient = False  # a publication is handled whose acknowledgement can wait for others
        self._accepting = Accepting(node.awaits)
        self._settling = Settling(node.interest.wanted_scopes, node.interest.is_accepted)
        self._delivery = LocalDelivery(self.own_topics, figures, self._settling, lambda: clock() + dials.clock_ahead_s)
        self.spans: PublicationSpans | None = None  # None: no collector of OpenTelemetry is told

    def follow_messages(self, followed: FollowedMessages | None) -> None:
        super().follow_messages(followed)
        self._outgoing.followed = self._followed

    # ------------------------------------------------------------------------------------------- lifetime

    def _restore(self, broker: LocalBroker) -> None:
        if kept := self._rows.open(broker.kept_rows()):
            self._handle(Restored(kept))
        self._gateway.acknowledged.restore(self._receipts.restored())
        for topic_filter in broker.local_filters():
            self.filter_subscribed(topic_filter, broker.wanted_of(topic_filter))
        for group in broker.local_groups():
            self.group_joined(group)

    def _begin(self, broker: LocalBroker) -> None:
        if self._entities is not None:
            self._entities.start(self._perform_availability, broker.retained_payloads(self._entities.kept_at))

    async def stop(self) -> None:
        self._accepting.stop()
        self._settling.stop()
        if self._entities is not None:
            self._entities.stop()
        await super().stop()
        self._receipts.close()

    def gauges(self) -> dict[str, int]:
        return super().gauges() | {"outbox_depth": self._store.depth + self._gateway.unstored}

    # -------------------------------------------------------------------- local clients (called by broker)

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        """Takes a publication of a local client. False: its topic stays local. True: `done(code)` once it is durable.

        A protected topic we may not publish on is refused: it neither stays local nor goes out in clear.
        """
        if super().publish(client_id, publication, done):
            return True
        gateway, topic = self._gateway, publication.topic
        if constrained.stays_here(topic):
            return False
        if gateway.secret_for(topic) is None and not any(matches(f, topic) for f in self._shared):
            return False
        response = publication.response_topic
        if not self._rights.may_publish(gateway, topic):
            self.figures.count_effect(Count("publish_refused"))
            done(ReasonCode.NOT_AUTHORIZED)
        elif not self._fits_replicas(publication):
            self.figures.count_effect(Count("publish_refused"))
            self._rights.say_refused(LogEvent.TOO_LARGE_FOR_REPLICAS, client_id)
            done(PACKET_TOO_LARGE)
        elif response is not None and gateway.secret_for(response) is None:
            self.figures.count_effect(Count("publish_refused"))
            self._rights.say_refused(LogEvent.RESPONSE_TOPIC_UNPROTECTED, client_id)
            done(ReasonCode.TOPIC_NAME_INVALID)
        else:
            if publication.retain:
                gateway.publisher.retained.expect(topic, publication.owner, client_id)
            self._outgoing.take_publication(publication, done, client_id)
            if self._rereading and (secret := gateway.secret_for(topic)) is not None:
                self._rereading.take_published(publication, secret.scope.filter)
        return True

    def publish_run(self, client_id: str, run: Sequence[Publication], done: Callable[[int], None]) -> int:
        """Takes leading publications of one scope that are no more than topic and payload, at once."""
        gateway = self._gateway
        if self._rereading:
            return 0
        chain, topic, count, room = None, "", 0, 0
        most_bytes = SMALL_BYTES - gateway.publisher.sealer.padding
        for publication in run:
            if publication.topic != topic:
                topic = publication.topic
                if constrained.stays_here(topic) or topic in self.own_topics or gateway.secret_for(topic) is None:
                    break
                of = self._chain_of(topic)
                if (chain is not None and of != chain) or not self._rights.may_publish(gateway, topic):
                    break
                chain, room = of, most_bytes - CHAR_BYTES * len(topic)
            if len(publication.payload) >= room:
                break
            count += 1
        return 0 if chain is None else self._outgoing.take_run(run[:count], done, chain, client_id)

    def _chain_of(self, topic: str) -> Chain:
        """Returns the chain of a topic, whose batches are as large as enough replicas take.

        A hosted broker may take little; a batch that is too large for a hosted broker passes that broker by.
        """
        home = self._gateway.home
        if home is not self._limits_of:
            hosted = self._keeping.overlay.hosted
            self._limit_bytes = self._dials.packet_limit(home.members, home.threshold, hosted)
            self._limits_of = home
        return self._gateway.chain_of(topic, self._limit_bytes)

    def may_leave(self, topic: str) -> bool:
        """Returns True if a bridge may hand a local topic to an ordinary broker: it is in no scope, plain, or ours to
        read.
        """
        secret = self._gateway.secret_for(topic)
        if secret is None:
            return not any(matches(f, topic) for f in self._shared)
        overlay = self._keeping.overlay
        epoch = overlay.policy.calendar.epoch_at(self._clock())
        return secret.scope.mode is Mode.PLAIN or overlay.may_read(self.figures.name, secret.scope, epoch)

    def _fits_replicas(self, publication: Publication) -> bool:
        """Returns True if enough replicas to recombine a key take a packet of this size: otherwise it would be lost in
        silence.
        """
        of, gateway = publication, self._gateway
        filled = len(of.payload) + CHAR_BYTES * len(of.topic) + gateway.publisher.sealer.padding
        has_more = of.properties or of.correlation_data or of.response_topic or of.content_type
        if filled < SMALL_BYTES and not has_more:
            return True
        home = gateway.home
        limit = self._dials.packet_limit(home.members, home.threshold)
        return gateway.packet_bytes(publication) <= limit

    def may_subscribe(self, topic_filter: str) -> bool:
        """Returns False if no publication can reach a local subscription of the filter, for want of rights."""
        if constrained.stays_here(topic_filter):
            return True
        if self._entities is not None and overlaps(self._entities.kept_at, topic_filter):
            return True  # local clients' own states are told here whatever the overlay says
        return self._rights.may_subscribe(self._gateway, topic_filter)

    def rights(self) -> tuple[ScopeRights, ...]:
        return self._rights.standing(self._gateway)

    def _review_rights(self, broker: LocalBroker) -> None:
        """Ends local subscriptions of scopes whose right to read ended."""
        if self._rights.review(self._gateway):
            broker.end_unreadable(self.may_subscribe)

    def filter_subscribed(self, topic_filter: str, wanted: Predicate | None = None, narrows: bool = False) -> bool:
        if constrained.stays_here(topic_filter):
            return True
        is_handled = self._handle(Subscribed(topic_filter, wanted, narrows))
        self._settling.look_at_scopes()
        return is_handled

    def filter_unsubscribed(self, topic_filter: str) -> None:
        if not constrained.stays_here(topic_filter):
            self._handle(Unsubscribed(topic_filter))
            self._settling.look_at_scopes()

    def group_joined(self, group: LocalGroup) -> None:
        """Tells the node of a shared group with local members."""
        self._handle(GroupJoined(group.name, group.filter, group.is_whole, group.owner))

    def group_left(self, group: str, topic_filter: str) -> None:
        self._handle(GroupLeft(group, topic_filter))

    def entity_event(self, event: AvailabilityEvent) -> None:
        if self._entities is not None:
            self._entities.handle(event)

    def _perform_availability(self, effect: AvailabilityEffect) -> None:
        if not isinstance(effect, Announce):
            self.figures.count_effect(effect)
            return
        assert self._broker is not None
        self._broker.deliver_local(effect.publication)
        self.publish("", effect.publication, lambda code: None)

    # ------------------------------------------------------------------------ members (called by dials)

    def link_up(self, peer: str) -> None:
        self._limits_of = None
        super().link_up(peer)

    def link_published(self, peer: str, publish: Publish, client: MqttClient) -> None:
        self._withheld.begin_handling()
        is_held = client.manual_ack and publish.qos > 0
        before, self._came[peer] = self._came.get(peer, 0.0), self._clock()
        # The window of a hosted broker is too small for acknowledgements that come together.
        is_alone = abs(self._came[peer] - before) >= ALONE_S and peer not in self._keeping.overlay.hosted
        self._is_patient = is_held and is_alone
        self._take_publish(peer, publish)
        if is_held:
            self._withheld.handled(partial(client.acknowledge, publish))
        self._is_patient = False

    def _when_kept(self, acknowledge: Callable[[], None]) -> None:
        """Acknowledges a publication once deliveries and rows are on disk: a restart neither loses nor repeats any."""
        if self._broker is not None:
            self._broker.when_kept(acknowledge, self._is_patient)

    def when_accepted(self, topic_filters: Sequence[str], done: Callable[[], None]) -> bool:
        """Calls `done` when our replicas know of these subscriptions. False: there is nothing to wait for."""
        return bool(self._dials.connected_peers) and self._accepting.wait_for_quorum(topic_filters, done)

    def unsettled(self, topic_filters: Sequence[str]) -> list[str]:
        """Returns clear filters of scopes with retained values under way, among the scopes of the given filters."""
        return self._settling.unsettled(topic_filters)

    def when_settled(self, scopes: Collection[str], done: Callable[[], None]) -> bool:
        """Calls `done` once the retained values of the scopes are here, or after the longest wait. False: not."""
        return bool(self._dials.connected_peers) and self._settling.wait_until_settled(scopes, done)

    def _take_publish(self, peer: str, publish: Publish) -> None:
        if publish.topic != HISTORY_TOPIC or not self._reaches.takes(peer, publish.payload):
            super()._take_publish(peer, publish)

    # ------------------------------------------------------------------------------ hands of the driver

    def _handle(self, event: Event) -> bool:
        is_handled = super()._handle(event)
        if type(event) is Acked and event.ticket < 0:  # of a statement
            self._settling.look_at_scopes()
            self._accepting.look_for_quorum()
        elif type(event) is NotTaken:
            self._limits_of = None
        return is_handled

    def withhold(self, number: int) -> None:
        self._withheld.withhold(number)

    def acknowledge_withheld(self, numbers: Sequence[int]) -> None:
        self._is_patient = False  # a replica waits for the room
        self._withheld.acknowledge_withheld(numbers)

    def deliver_publications(self, effects: Sequence[Deliver]) -> None:
        assert self._broker is not None
        if self._rereading:
            for effect in effects:
                self._rereading.delivered(effect)
        if self.spans is None and self._followed is None:
            self._delivery.deliver_publications(self._broker, effects)
            return
        for effect in effects:
            if self.spans is not None and effect.publication.properties:
                self._deliver_traced(effect, self.spans)
            else:
                self._hand_out(effect)

    def _deliver_traced(self, effect: Deliver, spans: PublicationSpans) -> None:
        """Hands out a publication within a span, which is the parent of what follows."""
        publication = effect.publication
        user, end = spans.span_of_opened(
            effect.publisher, effect.sequence, publication.topic, len(publication.payload), publication.properties
        )
        if user is not publication.properties:
            effect = replace(effect, publication=replace(publication, properties=user))
        try:
            self._hand_out(effect)
        finally:
            end()

    def _hand_out(self, effect: Deliver) -> None:
        assert self._broker is not None
        if self._followed is not None:
            self._followed.say_opened(effect, partial(self._delivery.deliver_publications, self._broker, (effect,)))
            return
        self._delivery.deliver_publications(self._broker, (effect,))

    def deliver_to_group(self, effect: DeliverShared) -> None:
        assert self._broker is not None
        self._delivery.deliver_to_group(self._broker, effect)

    def keep_rows(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self._broker is not None:
            self._broker.keep_rows(self._rows.seal(rows), self._is_patient)

    def forget_sequences(self, sequences: Sequence[int]) -> None:
        self._store.forget_entries(sequences)

    def leave_on_disk(self, sequences: Sequence[int]) -> None:
        self._outgoing.leave_on_disk(sequences)

    def read_page(self, start: int) -> None:
        self._outgoing.read_page(start)

    def of_history(self, effect: OfHistory) -> None:
        if isinstance(effect, Reread | ReadAgainLive | ReadAgainDone):
            self._rereading.effect(effect)

    def of_receipts(self, effect: OfReceipts) -> None:
        assert self._broker is not None
        match effect:
            case AskKept(mark):
                self._broker.when_kept(partial(self._when_settled, mark))
            case KeepSealed():
                self._receipts.keep_row(effect)
            case ReceiptCame():
                self._receipts.keep_row(effect)
                for told in receipts_told(effect, self._broker.local_filters()):
                    self._broker.deliver_local(told)

    def _when_settled(self, mark: int) -> None:
        """Tells the node, not from inside the handling of another event, that deliveries are on disk."""
        asyncio.get_running_loop().call_soon(self._handle, OnDisk(mark))

    def _readers(self) -> list[ReaderState]:
        """Returns how each reader stands with our publications in scopes with receipts."""
        now = self._clock()
        return [
            ReaderState(
                each.reader, each.scope, each.time_ms, each.through, each.missing,
                max(0.0, now - each.oldest_ms / 1000) if each.oldest_ms else 0.0,
            )
            for each in self._gateway.acknowledged.reader_states()
        ]  # fmt: skip

    # ------------------------------------------------------------------------------------------- histories

    def reaches(self) -> list[ScopeSpan]:
        """Returns how far histories of the home region reach, as replicas said last."""
        return self._reaches.known_spans(self._keeping.overlay, self._gateway.secrets, self._dials.connected_peers)

    @property
    def has_history(self) -> bool:
        return any(scope.history is not None for scope in self._keeping.overlay.policy.scopes)

    def read_again(
        self,
        topic_filter: str,
        since_ms: int,
        give: Give,
        has_room: Callable[[], bool],
        done: Callable[[], None],
        owner: str,
    ) -> Callable[[], None]:
        """Reads the past of a filter for a local client; `done` is called when nothing of it is left. Returns a
        function ending the reading. `owner`: the user of the client, or the address of a nameless one.
        """
        overlay = self._keeping.overlay
        epoch = overlay.policy.calendar.epoch_at(self._clock())
        scopes = [
            (secret.scope.number, secret.scope.filter)
            for secret in self._gateway.secrets
            if secret.scope.history is not None
            and overlaps(secret.clear_filter, topic_filter)
            and overlay.may_read(self.figures.name, secret.scope, epoch)
        ]
        if not scopes:
            asyncio.get_running_loop().call_soon(done)
            return lambda: None
        return self._rereading.begin_reading(topic_filter, scopes, since_ms, give, has_room, done, owner)

    def adopted(self, overlay: Overlay, removed: bool) -> None:
        self._rights.forget_answers()
        self._limits_of = None
        super().adopted(overlay, removed)

    def _each_second(self, broker: LocalBroker) -> None:
        self._review_rights(broker)
        for topic_filter in broker.narrowed():
            if (wanted := broker.wanted_of(topic_filter)) is not None:
                self.filter_subscribed(topic_filter, wanted, narrows=True)
