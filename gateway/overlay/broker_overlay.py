"""The overlay of a broker: what the broker's local clients and the members that dialled it have to do with a node.

Events come from four sides: local clients (`publish`, `subscribed`, ... called by the broker), members that dialled us
(`peer_*`), members we dialled (`link_*`), and the driver, which watches the clock and the overlay file and brings
every effect back here. What must be kept on disk goes through `keeping`, local publications through `outgoing`. A
gateway dials every replica of its region and every key server; replicas dial each other, a single connection for each
direction, so that the sender is always the MQTT client. No rule of the protocol is here: they are in `bridge`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bridge.base import matches, overlaps
from bridge.contract import (
    HISTORY_TOPIC,
    Acked,
    AskKept,
    Beat,
    Chain,
    Count,
    Deliver,
    DeliverShared,
    Event,
    GroupJoined,
    GroupLeft,
    KeepSealed,
    LinkDown,
    LinkUp,
    NotTaken,
    OnDisk,
    OverlayNode,
    Publication,
    ReadAgainDone,
    ReadAgainLive,
    Recall,
    ReceiptCame,
    Received,
    Record,
    RecordEra,
    Reread,
    Restored,
    Subscribed,
    Unsubscribed,
    Wire,
)
from bridge.document import History, Overlay, OwnTopics, RegionView, constrained
from bridge.node import GatewayNode
from bridge.predicates import Predicate
from bridge.presence import BEAT_S
from bridge.traces import Announce, AvailabilityEffect, AvailabilityEvent
from gateway.base import FIGURES_TOPIC, Figures, HistoryState, ReaderState, ScopeSpan
from gateway.base.followed import FollowedMessages
from gateway.base.log_events import LogEvent
from gateway.base.rhythm import until_next
from gateway.base.spans import PublicationSpans
from gateway.client import MqttClient
from gateway.clients import Done, LocalBroker, LocalGroup, PeerRefusal
from gateway.history import Give, HistoryKeeper, Rereading
from gateway.mqtt5.packets import Publish
from gateway.outbox import Outgoing, Store
from gateway.overlay.accepting import Accepting
from gateway.overlay.backpressure import Backpressure
from gateway.overlay.delays import Delays
from gateway.overlay.dials import Dials
from gateway.overlay.driver import Driver, OfHistory, OfReceipts
from gateway.overlay.entities import LocalEntities
from gateway.overlay.followed_wires import FollowedWires
from gateway.overlay.keeping import Keeping
from gateway.overlay.loading import Loading
from gateway.overlay.local_delivery import LocalDelivery
from gateway.overlay.local_rights import LocalRights, ScopeRights
from gateway.overlay.peer_refusals import refusal
from gateway.overlay.reaching import HomeReaches
from gateway.overlay.reader_rows import ReaderRows
from gateway.overlay.receipt_topics import receipts_told
from gateway.overlay.settling import Settling
from gateway.overlay.wires import PACKET_TOO_LARGE, Wires
from gateway.overlay.withheld import Withheld
from gateway.receipts import ReceiptKeeper
from keys.envelope import Mode
from keys.identity import Role

log = logging.getLogger("veilmq.links")

FIGURES_EVERY_S = 1.0
ALONE_S = 0.015
"""A message that comes sooner behind the last of its replica is acknowledged soon: more may wait there."""
REFUSED_SHOWN_S = 150.0  # a publisher offers again what was refused after 60 s at most
SMALL_BYTES = 1024  # payload, topic and filling zeros that every replica takes, with nothing else beside
CHAR_BYTES = 4  # of a topic, at most
TOPIC_NAME_INVALID = 0x90
NOT_AUTHORIZED = 0x87


class OverlayParts(NamedTuple):
    """Parts of a `BrokerOverlay`, for health and console, which look and change nothing."""

    node: OverlayNode
    store: Store
    keeping: Keeping
    dials: Dials


class BrokerOverlay:
    """A party's overlay. Made by `gateway.party.build`; given to `EdgeBroker` as its `overlay`.

    `protected`, `plain`: clear filters whose topics the configuration sends through the overlay, sealed or in clear.
    Whatever a later policy says, they never stay local, and the protected ones never go in clear. `rows`: of a
    gateway,
    seals what it keeps of what it read.
    """

    def __init__(
        self,
        node: OverlayNode,
        figures: Figures,
        store: Store,
        keeping: Keeping,
        dials: Dials,
        entities: LocalEntities | None = None,
        clock: Callable[[], float] = time.time,
        protected: Sequence[str] = (),
        plain: Sequence[str] = (),
        rows: ReaderRows | None = None,
        full_is_local: bool = False,
        history: Path | None = None,
        receipts: ReceiptKeeper | None = None,
    ) -> None:
        """Takes `history`: where a replica keeps publications of scopes with a history; `receipts`: of a gateway."""
        self._node, self._rows, self._receipts = node, rows, receipts
        self._gateway = node if isinstance(node, GatewayNode) else None
        self.figures = figures
        self._store, self._keeping, self._dials = store, keeping, dials
        self._rereading = Rereading(figures.name, self._handle, clock)
        self._reaches = HomeReaches(figures.name, lambda send: self.send(send.peer, send.wire, 0), clock)
        self._driver = Driver(node, keeping.live, dials, figures, self, clock)
        self._history: HistoryKeeper | None = None
        if history is not None:
            key = partial(keeping.data.sealing_key, b"history")
            self._history = HistoryKeeper(history, key, self._histories, self._handle, figures.count, clock)
            figures.histories = self._reach
        figures.readers = self._readers
        self._outgoing = Outgoing(store, figures, self._driver.handle, self._chain_of, full_is_local=full_is_local)
        self._entities = entities
        self.own_topics = OwnTopics()
        if entities is not None:
            entities.machine.guard(self.own_topics)
        self._clock = clock
        self._shared = (*protected, *plain)
        self._rights = LocalRights(lambda: self._keeping.overlay, clock, plain, figures.name, protected)
        self._limits_of: RegionView | None = None  # whose packets are at most `_limit_bytes` long
        self._limit_bytes = 0
        self._broker: LocalBroker | None = None
        self._drop: Callable[[str], None] = lambda peer: None
        self._refusal = ""  # why what is handled at this moment is refused
        self._refused: dict[str, tuple[str, float]] = {}  # by neighbour: why what it published was, and when last
        self._delay_s = 0.0  # by how much later it is acknowledged
        self._delays = Delays()
        self._withheld = Withheld(self._when_kept)
        self.withhold = self._withheld.withhold
        self._came: dict[str, float] = {}  # by replica: when it sent last
        self._is_patient = False  # a publication is handled whose acknowledgement can wait for others
        self._shown: dict[str, bytes] = {}  # members that dialled us, with the certificate that they showed
        self._accepting = Accepting(self._gateway.awaits if self._gateway is not None else lambda _: False)
        interest = None if self._gateway is None else self._gateway.interest
        self._settling = None if interest is None else Settling(interest.wanted_scopes, interest.accepted)
        self._delivery = LocalDelivery(self.own_topics, figures, self._settling, lambda: clock() + dials.clock_ahead_s)
        self._showing: asyncio.Task[None] | None = None
        self._flow: Backpressure | None = None
        self._loading: asyncio.Task[None] | None = None
        self._loads: Loading | None = None
        if keeping.role is Role.REPLICA:
            member = keeping.overlay.members.get(figures.name)
            home = None if member is None else member.certificate.region
            self._flow = Backpressure(lambda: self._keeping.overlay, dials, figures.count, home)
        self._wires = Wires(dials, figures, self._handle, self._flow, clock)
        self._followed: FollowedWires | None = None
        self.spans: PublicationSpans | None = None  # None: no collector of OpenTelemetry is told

    def follow(self, followed: FollowedMessages | None) -> None:
        """Says the steps of messages there from now on; None: nowhere."""
        overlay = self._keeping
        self._followed = (
            None if followed is None else FollowedWires(followed, lambda: overlay.overlay, self.figures.counts)
        )
        self._outgoing.followed = self._followed

    # ------------------------------------------------------------------------------------------- lifetime

    def start(self, broker: LocalBroker, drop: Callable[[str], None] | None = None) -> None:
        """Take up what the outbox holds, then dial; the broker serves already. `drop` ends a member's session."""
        self._broker = broker
        self._drop = drop or self._drop
        if self._rows is not None and (kept := self._rows.open(broker.kept())):
            self._handle(Restored(kept))
        if self._receipts is not None and self._gateway is not None:
            self._gateway.acknowledged.restore(self._receipts.restored())
        for topic_filter in broker.local_filters():
            self.subscribed(topic_filter, broker.wanted_of(topic_filter))
        for group in broker.local_groups():
            self.group_joined(group)
        self._dials.start(self.peers_to_dial(), self)
        self._wires.start(broker)
        if self._entities is not None:
            self._entities.start(self._tell, broker.retained(self._entities.kept_at))
        self._showing = asyncio.get_running_loop().create_task(self._show_figures(), name="figures")
        if self._flow is not None:
            self._loads = Loading(self._dials, self._goes_by_planes)
            self._loading = asyncio.get_running_loop().create_task(self._loads.run(self._handle), name="loads")
        self._driver.start()

    async def stop(self) -> None:
        """Close links and store; what the outbox holds is sent after the next start."""
        self._accepting.stop()
        if self._settling is not None:
            self._settling.stop()
        self._delays.stop()
        if self._entities is not None:
            self._entities.stop()
        await self._driver.stop()
        for task in (self._showing, self._loading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._dials.close()
        if self._history is not None:
            self._history.close()
        if self._receipts is not None:
            self._receipts.close()
        self._store.close()

    def _goes_by_planes(self) -> bool:
        return any(scope.planes for scope in self._keeping.overlay.policy.scopes)

    @property
    def parts(self) -> OverlayParts:
        """The parts that health and console look at."""
        return OverlayParts(self._node, self._store, self._keeping, self._dials)

    def gauges(self) -> dict[str, int]:
        """Returns the present values for the figures."""
        policy = self._keeping.overlay.policy
        held = {} if self._flow is None else {"acks_held": self._flow.acks_held}
        return held | {
            "outbox_depth": self._store.depth + (self._gateway.unstored if self._gateway else 0),
            "outbox_bytes": self._store.held_bytes,
            "links_up": len(self._dials.up),
            "links": len(self._dials),
            "epoch": policy.calendar.at(self._clock()),
            "policy_version": policy.version,
        }

    # -------------------------------------------------------------------- local clients (called by broker)

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        """A local client's publication. False: its topic stays local. True: `done(code)` once it is durable.

        A protected topic we may not publish on is refused: it neither stays local nor goes out in clear.
        """
        gateway, topic = self._gateway, publication.topic
        if client_id and topic in self.own_topics:
            self.figures.count(Count("own_topics_refused"))
            done(NOT_AUTHORIZED)
            return True
        if gateway is None or constrained.stays_here(topic):
            return False
        if gateway.secret_for(topic) is None and not any(matches(f, topic) for f in self._shared):
            return False
        response = publication.response_topic
        if not self._rights.may_publish(gateway, topic):
            self.figures.count(Count("publish_refused"))
            done(NOT_AUTHORIZED)
        elif not self._fits(gateway, publication):
            self.figures.count(Count("publish_refused"))
            self._rights.say_refused(LogEvent.TOO_LARGE_FOR_REPLICAS, client_id)
            done(PACKET_TOO_LARGE)
        elif response is not None and gateway.secret_for(response) is None:
            self.figures.count(Count("publish_refused"))
            self._rights.say_refused(LogEvent.RESPONSE_TOPIC_UNPROTECTED, client_id)
            done(TOPIC_NAME_INVALID)
        else:
            if publication.retain:
                gateway.publisher.retained.expect(topic, publication.owner, client_id)
            self._outgoing.take_publication(publication, done, client_id)
            if self._rereading and (secret := gateway.secret_for(topic)) is not None:
                self._rereading.published(publication, secret.scope.filter)
        return True

    def _chain_of(self, topic: str) -> Chain:
        """Its batches are as large as enough replicas take: a hosted broker may take little, and what is too large for
        a passes it by.
        """
        gateway = self._gateway
        if gateway is None:
            return Chain(topic)
        home = gateway.home
        if home is not self._limits_of:
            hosted = self._keeping.overlay.hosted
            self._limit_bytes = self._dials.packet_limit(home.members, home.threshold, hosted)
            self._limits_of = home
        return gateway.chain_of(topic, self._limit_bytes)

    def may_leave(self, topic: str) -> bool:
        """Returns True if a bridge may hand a local topic to an ordinary broker: it is in no scope, plain, or ours to
        read.
        """
        secret = self._gateway.secret_for(topic) if self._gateway is not None else None
        if secret is None:
            return not any(matches(f, topic) for f in self._shared)
        overlay = self._keeping.overlay
        epoch = overlay.policy.calendar.at(self._clock())
        return secret.scope.mode is Mode.PLAIN or overlay.may_read(self.figures.name, secret.scope, epoch)

    def _fits(self, gateway: GatewayNode, publication: Publication) -> bool:
        """Returns True if enough replicas to recombine a key take a packet of this size: otherwise it would be lost in
        silence.
        """
        of = publication
        filled = len(of.payload) + CHAR_BYTES * len(of.topic) + gateway.publisher.sealer.padding
        has_more = of.properties or of.correlation_data or of.response_topic or of.content_type
        if filled < SMALL_BYTES and not has_more:
            return True
        home = gateway.home
        limit = self._dials.packet_limit(home.members, home.threshold)
        return gateway.packet_bytes(publication) <= limit

    def may_subscribe(self, topic_filter: str) -> bool:
        """Returns False if no publication can reach a local subscription of the filter, for want of rights."""
        gateway = self._gateway
        if gateway is None or constrained.stays_here(topic_filter):
            return True
        if self._entities is not None and overlaps(self._entities.kept_at, topic_filter):
            return True  # local clients' own states are told here whatever the overlay says
        return self._rights.may_subscribe(gateway, topic_filter)

    def rights(self) -> tuple[ScopeRights, ...]:
        """Returns the rights of this gateway in each of its scopes; empty at other members."""
        return () if self._gateway is None else self._rights.standing(self._gateway)

    def refused(self, now: float) -> dict[str, str]:
        """Returns the last reason for which publications were refused, by neighbour, within `REFUSED_SHOWN_S`."""
        self._refused = {peer: last for peer, last in self._refused.items() if now - last[1] < REFUSED_SHOWN_S}
        return {peer: reason for peer, (reason, _) in self._refused.items()}

    def _review_rights(self) -> None:
        """Ends local subscriptions of scopes whose right to read ended."""
        if self._gateway is not None and self._broker is not None and self._rights.review(self._gateway):
            self._broker.end_unreadable(self.may_subscribe)

    def subscribed(self, topic_filter: str, wanted: Predicate | None = None, narrows: bool = False) -> bool:
        """Takes the first local subscription of a filter, or a further one that wants something else. False: a defect
        of ours prevents it."""
        if constrained.stays_here(topic_filter):
            return True
        is_handled = self._handle(Subscribed(topic_filter, wanted, narrows))
        self._look_at_scopes()
        return is_handled

    def unsubscribed(self, topic_filter: str) -> None:
        if not constrained.stays_here(topic_filter):
            self._handle(Unsubscribed(topic_filter))
            self._look_at_scopes()

    def _look_at_scopes(self) -> None:
        if self._settling is not None:
            self._settling.look()

    def group_joined(self, group: LocalGroup) -> None:
        """A shared group has local members."""
        self._handle(GroupJoined(group.name, group.filter, group.is_whole, group.owner))

    def group_left(self, group: str, topic_filter: str) -> None:
        self._handle(GroupLeft(group, topic_filter))

    def entity_event(self, event: AvailabilityEvent) -> None:
        """Takes an event of a local client, for its availability topic."""
        if self._entities is not None:
            self._entities.handle(event)

    def _tell(self, effect: AvailabilityEffect) -> None:
        if not isinstance(effect, Announce):
            self.figures.count(effect)
            return
        assert self._broker is not None
        self._broker.deliver_local(effect.publication)
        self.publish("", effect.publication, lambda code: None)

    # ------------------------------------------------------------------------ members (called by broker)

    def recognise(self, certificate_der: bytes, client_id: str) -> str | None:
        """The neighbour of ours behind a TLS certificate; its client id must be its name."""
        name = self._keeping.recognise(certificate_der)
        if name is None or name != client_id or not self._is_neighbour(name):
            return None
        self._shown[name] = certificate_der
        return name

    def _is_neighbour(self, name: str) -> bool:
        """Not a member of elsewhere, nor a replica that was detached. Those who left us behind may still hear of it."""
        return self._node.removed or name in self._node.peers

    def peer_connected(self, peer: str, session: object) -> None:
        """A member dialled us. A replica only sends on this connection: for ours to it, we dial."""
        if self._flow is not None:
            self._flow.reconnected(peer)
        self._delays.reconnected(peer)
        if peer not in self._dials:
            self._handle(LinkUp(peer))

    def peer_disconnected(self, peer: str) -> None:
        known = self._shown.pop(peer, None) is not None
        if known and peer not in self._dials:
            self._handle(LinkDown(peer))

    def peer_published(self, peer: str, publish: Publish) -> Callable[[Done], bool] | PeerRefusal | None:
        self.figures.received(peer, len(publish.payload))
        flow, self._refusal, self._delay_s = self._flow, "", 0.0
        if flow is not None:
            flow.begin()
        self._received(peer, publish)
        if self._refusal:
            self._refused[peer] = self._refusal, self._clock()
            return refusal(self._refusal, self._clock())
        hold = None if flow is None else flow.hold(peer, publish)
        return self._delays.hold(peer, self._delay_s, hold) if self._delay_s else hold

    # ------------------------------------------------------------------------ members (called by dials)

    def link_up(self, peer: str) -> None:
        self._limits_of = None
        self._wires.link_up(peer)

    def link_down(self, peer: str) -> None:
        self._wires.link_down(peer)

    def link_published(self, peer: str, publish: Publish, client: MqttClient) -> None:
        self._withheld.begin()
        is_held = client.manual_ack and publish.qos > 0
        before, self._came[peer] = self._came.get(peer, 0.0), self._clock()
        # The window of a hosted broker is too small for acknowledgements that come together.
        is_alone = abs(self._came[peer] - before) >= ALONE_S and peer not in self._keeping.overlay.hosted
        self._is_patient = is_held and is_alone
        self._received(peer, publish)
        if is_held:
            self._withheld.handled(partial(client.acknowledge, publish))
        self._is_patient = False

    def _when_kept(self, acknowledge: Callable[[], None]) -> None:
        """Once what it changed is on disk, with what was delivered: so a restart neither loses nor repeats."""
        if self._broker is not None:
            self._broker.when_kept(acknowledge, self._is_patient)

    def link_watched(self, peer: str, ticket: int) -> None:
        self._handle(Acked(peer, ticket))

    def when_accepted(self, topic_filters: Sequence[str], done: Callable[[], None]) -> bool:
        """Call `done` when our replicas know of these subscriptions. False: there is nothing to wait for."""
        return bool(self._dials.up) and self._accepting.wait(topic_filters, done)

    def unsettled(self, topic_filters: Sequence[str]) -> list[str]:
        """Returns clear filters of scopes with retained values under way, among the scopes of the given filters."""
        return [] if self._settling is None else self._settling.unsettled(topic_filters)

    def when_settled(self, scopes: Collection[str], done: Callable[[], None]) -> bool:
        """Calls `done` once the retained values of the scopes are here, or after the longest wait. False: not."""
        return bool(self._dials.up) and self._settling is not None and self._settling.wait(scopes, done)

    def _received(self, peer: str, publish: Publish) -> None:
        if publish.topic == HISTORY_TOPIC and self._reaches.takes(peer, publish.payload):
            return
        wire = Wire(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties.user)
        if self._followed is None:
            self._handle(Received(peer, wire))
            return
        self._refusal = ""
        self._followed.handled(peer, wire, lambda: self._handle(Received(peer, wire)), lambda: self._refusal)

    # ------------------------------------------------------------------------------ hands of the driver

    def refuse(self, reason: str) -> None:
        self._refusal = reason

    def delay(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def _handle(self, event: Event) -> bool:
        if self._followed is not None:
            if type(event) is Acked:
                self._followed.taken(event.peer, event.ticket)
            elif type(event) is NotTaken:
                self._followed.not_taken(event.peer, event.ticket, event.reason)
        is_handled = self._driver.handle(event)
        if type(event) is Acked and event.ticket < 0:  # of a statement
            self._look_at_scopes()
            self._accepting.look()
        elif type(event) is NotTaken:
            self._limits_of = None
        return is_handled

    def send(self, peer: str, wire: Wire, ticket: int) -> None:
        if self._followed is not None:
            self._followed.sent(peer, wire)
        self._wires.send(peer, wire, ticket)

    def deliver(self, effect: Deliver) -> None:
        assert self._broker is not None
        if self._rereading:
            self._rereading.delivered(effect)
        if self.spans is not None and effect.publication.properties:
            self._deliver_traced(effect, self.spans)
            return
        self._hand_out(effect)

    def _deliver_traced(self, effect: Deliver, spans: PublicationSpans) -> None:
        """Hands out a publication within a span, which is the parent of what follows."""
        publication = effect.publication
        user, end = spans.opened(
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
            self._followed.opened(effect, partial(self._delivery.deliver, self._broker, effect))
            return
        self._delivery.deliver(self._broker, effect)

    def deliver_shared(self, effect: DeliverShared) -> None:
        assert self._broker is not None
        self._delivery.deliver_shared(self._broker, effect)

    def take(self, numbers: Sequence[int]) -> None:
        self._is_patient = False  # a replica waits for the room
        self._withheld.take(numbers)

    def keep(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        if self._rows is not None and self._broker is not None:
            self._broker.keep(self._rows.seal(rows), self._is_patient)

    def forget(self, sequences: Sequence[int]) -> None:
        self._store.forget(sequences)

    def leave(self, sequences: Sequence[int]) -> None:
        self._outgoing.leave(sequences)

    def read_page(self, start: int) -> None:
        self._outgoing.read_page(start)

    def keys_changed(self) -> None:
        self._keeping.keys_changed(self._clock())

    def keep_material(self, material: bytes) -> None:
        self._keeping.keep_material(material)

    def keep_archive(self, epoch: int, content: bytes | None) -> None:
        self._keeping.keep_archive(epoch, content)

    def _histories(self) -> dict[int, History]:
        scopes = self._keeping.overlay.policy.scopes
        return {scope.number: scope.history for scope in scopes if scope.history is not None}

    def of_history(self, effect: OfHistory) -> None:
        history = self._history
        match effect:
            case Record() if history is not None:
                history.record(effect)
            case RecordEra() if history is not None:
                history.record_era(effect)
            case Recall() if history is not None:
                history.recall(effect)
            case Reread() | ReadAgainLive() | ReadAgainDone():
                self._rereading.effect(effect)

    def of_receipts(self, effect: OfReceipts) -> None:
        assert self._broker is not None
        match effect:
            case AskKept(mark):
                self._broker.when_kept(partial(self._when_settled, mark))
            case KeepSealed() if self._receipts is not None:
                self._receipts.keep(effect)
            case ReceiptCame() if self._receipts is not None:
                self._receipts.keep(effect)
                for told in receipts_told(effect, self._broker.local_filters()):
                    self._broker.deliver_local(told)

    def _when_settled(self, mark: int) -> None:
        """Tells the node, not from inside the handling of another event, that deliveries are on disk."""
        asyncio.get_running_loop().call_soon(self._handle, OnDisk(mark))

    def _readers(self) -> list[ReaderState]:
        """Returns how each reader stands with our publications in scopes with receipts; nothing at other members."""
        states, now = [] if self._gateway is None else self._gateway.acknowledged.states(), self._clock()
        return [
            ReaderState(
                each.reader, each.scope, each.time_ms, each.through, each.missing,
                max(0.0, now - each.oldest_ms / 1000) if each.oldest_ms else 0.0,
            )
            for each in states
        ]  # fmt: skip

    def _reach(self) -> list[HistoryState]:
        """Returns how far each history of this replica reaches; nothing at other members."""
        history, scopes = self._history, self._keeping.overlay.policy.scopes
        if history is None:
            return []
        return history.states((scope.filter, scope.number) for scope in scopes if scope.history is not None)

    def reaches(self) -> list[ScopeSpan]:
        """Returns how far histories reach: a gateway's in its region, as replicas said last; a replica's own."""
        overlay = self._keeping.overlay
        if self._gateway is not None:
            return self._reaches.look(overlay, self._gateway.secrets, self._dials.up)
        days = {scope.filter: scope.history.days for scope in overlay.policy.scopes if scope.history is not None}
        region = overlay.views[overlay.certificate(self.figures.name).region].name if days else ""
        return [
            ScopeSpan(one.scope, region, days[one.scope], 0, 0, (one.span(self.figures.name),)) for one in self._reach()
        ]

    @property
    def has_history(self) -> bool:
        """True if local clients may read a history."""
        return self._gateway is not None and bool(self._histories())

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
        assert self._gateway is not None
        overlay = self._keeping.overlay
        epoch = overlay.policy.calendar.at(self._clock())
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
        return self._rereading.begin(topic_filter, scopes, since_ms, give, has_room, done, owner)

    def adopted(self, overlay: Overlay, removed: bool) -> None:
        if removed:
            self._keeping.removed()
            if self._history is not None:
                self._history.erase()
        self._rights.forget()
        self._limits_of = None
        for peer, certificate in list(self._shown.items()):
            if self._keeping.recognise(certificate) != peer or not self._is_neighbour(peer):
                del self._shown[peer]
                LogEvent.LINK_CLOSED.say(log, peer)
                self._drop(peer)

    def peers_to_dial(self) -> list[str]:
        return self._keeping.listeners(sorted(self._node.peers))

    async def _show_figures(self) -> None:
        loop_time = asyncio.get_running_loop().time
        beat_at, has_beaten = loop_time() + BEAT_S, False
        while True:
            assert self._broker is not None
            self._keeping.tick(self._clock())
            self._review_rights()
            # The first beat says what is linked: once all links have come, or had time to come.
            is_linked = not has_beaten and self._dials.up and set(self.peers_to_dial()) <= set(self._dials.up)
            if self._flow is not None and (is_linked or loop_time() >= beat_at):
                beat_at, has_beaten = loop_time() + BEAT_S, True
                self._handle(Beat(tuple({*self._dials.up, *self._shown})))
            for topic_filter in self._broker.narrowed():
                if (wanted := self._broker.wanted_of(topic_filter)) is not None:
                    self.subscribed(topic_filter, wanted, narrows=True)
            if self._flow is not None:
                self._flow.tick(self._clock())
            if self._history is not None:
                self._history.tidy()
            if self._loads is not None and self._keeping.overlay.policy.organising is not None:
                self._handle(self._loads.worked())
            body = self.figures.to_json(**self.gauges())
            self._broker.deliver_local(Publication(FIGURES_TOPIC, body, retain=True, time_ms=int(self._clock() * 1000)))
            await asyncio.sleep(until_next(FIGURES_EVERY_S))
