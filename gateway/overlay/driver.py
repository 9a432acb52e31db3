"""The overlay's shell in the broker: runs one `bridge.node` over real links, a real clock and a real store.

Events come from five sides: local clients (`publish`, `subscribed`, ... called by the broker), members that dialled
us (`peer_*`), members that we dialled (`link_*`), the overlay file, and the clock. Effects go back the same ways: what
must be kept on disk through `keeping`, local publications through `outgoing`. A gateway dials every replica of its
region and every key server; replicas dial each other, one connection for each direction, so that the sender is always
the MQTT client. No rule of the protocol is here: they are in `bridge/`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bridge.base import matches
from bridge.contract import (
    Acked,
    Adopt,
    Adoption,
    Blame,
    Count,
    Deliver,
    DeliverShared,
    Effect,
    Event,
    Forget,
    GroupJoined,
    GroupLeft,
    KeysChanged,
    LinkDown,
    LinkUp,
    Machine,
    Publication,
    Received,
    Republish,
    Rotated,
    Send,
    Subscribed,
    Tick,
    Unsubscribed,
    Watch,
    Wire,
)
from bridge.document import OverlayError, OwnTopics, constrained
from bridge.node import GatewayNode, Node, ReplicaNode
from bridge.traces import Announce, Availability, AvailabilityEvent
from gateway.base import FIGURES_TOPIC, Figures
from gateway.client import Client
from gateway.clients import Done, LocalBroker
from gateway.mqtt5.packets import Publish
from gateway.outbox import Outgoing, Store
from gateway.overlay.backpressure import Backpressure
from gateway.overlay.dials import Dials
from gateway.overlay.keeping import Keeping
from gateway.overlay.wires import PACKET_TOO_LARGE, Wires
from gateway.trust import LOOK_EVERY_S
from keys.envelope import Mode
from keys.issuing import KeepArchive, KeepMaterial

log = logging.getLogger("veilmq.links")

FIGURES_EVERY_S = 1.0
RIGHTS_MAX = 65_536  # topics whose right to be published is remembered until something changes
SMALL_BYTES = 1024  # payloads that every replica takes
TOPIC_NAME_INVALID = 0x90
NOT_AUTHORIZED = 0x87


class Links:
    """One party's overlay. Made by `gateway.party.build`; given to `EdgeBroker` as its `overlay`.

    `protected`, `plain`: clear filters whose topics the configuration sends through the overlay, sealed or in clear.
    Whatever a later policy says, they never stay local, and the protected ones never go in clear.
    """

    def __init__(
        self,
        node: Machine,
        figures: Figures,
        store: Store,
        keeping: Keeping,
        dials: Dials,
        entities: Availability | None = None,
        clock: Callable[[], float] = time.time,
        protected: Sequence[str] = (),
        plain: Sequence[str] = (),
        max_age_s: float | None = None,
    ) -> None:
        self._node = node
        inner: Any = node
        while hasattr(inner, "machine"):  # the demonstration's liar stands between
            inner = inner.machine
        self._inner: Node = inner
        self._gateway = inner if isinstance(inner, GatewayNode) else None
        self.figures = figures
        self._store, self._keeping, self._dials = store, keeping, dials
        publisher = self._gateway.publisher if self._gateway is not None else None
        self._outgoing = Outgoing(store, figures, self._handle, publisher, max_age_s, clock)
        self._entities = entities
        self.own_topics = OwnTopics()
        if entities is not None:
            entities.guard(self.own_topics)
        self._clock = clock
        self._plain, self._shared = tuple(plain), (*protected, *plain)
        self._rights: dict[str, bool] = {}
        self._rights_epoch = -1
        self._broker: LocalBroker | None = None
        self._drop: Callable[[str], None] = lambda peer: None
        self._shown: dict[str, bytes] = {}  # members that dialled us, with the certificate that they showed
        self._timers: dict[str, tuple[asyncio.TimerHandle, float]] = {}
        self._timer_due: asyncio.Handle | None = None  # sets the node's at the end of this turn of the loop
        self._refill_due: asyncio.Handle | None = None  # a page at a time, so that others have their turns between
        self._tasks: list[asyncio.Task[None]] = []
        self._flow: Backpressure | None = None
        if isinstance(inner, ReplicaNode):
            self._flow = Backpressure(lambda: self._keeping.overlay, dials, figures.count)
        self._wires = Wires(dials, figures, self._handle, self._flow, clock)

    # ------------------------------------------------------------------------------------------- lifetime

    def start(self, broker: LocalBroker, drop: Callable[[str], None] | None = None) -> None:
        """Take up what the outbox holds, then dial; the broker serves already. `drop` ends a member's session."""
        self._broker = broker
        self._drop = drop or self._drop
        self._outgoing.start()
        for topic_filter in broker.local_filters():
            self.subscribed(topic_filter)
        for group, topic_filter in broker.local_groups():
            self.group_joined(group, topic_filter)
        self._dials.start(self._peers_to_dial(), self)
        self._wires.start(broker)
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(self._show_figures()), loop.create_task(self._watch_file())]
        self._handle(Tick())

    async def stop(self) -> None:
        """Close links and store; what the outbox holds is sent after the next start."""
        if self._timer_due is not None:
            self._timer_due.cancel()
        if self._refill_due is not None:
            self._refill_due.cancel()
        for timer, _ in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._dials.close()
        self._store.close()

    @property
    def parts(self) -> tuple[Node, Store, Keeping, Dials]:
        """For those who look at how we stand (`standing`), and change nothing."""
        return self._inner, self._store, self._keeping, self._dials

    def gauges(self) -> dict[str, int]:
        """What is so at this moment, for the figures."""
        policy = self._keeping.overlay.policy
        held = {} if self._flow is None else {"acks_held": self._flow.acks_held}
        return held | {
            "outbox_depth": self._store.depth + (self._gateway.publisher.unstored if self._gateway else 0),
            "outbox_bytes": self._store.held_bytes,
            "links_up": len(self._dials.up),
            "links": len(self._dials),
            "epoch": policy.calendar.at(self._clock()),
            "policy_version": policy.version,
        }

    # -------------------------------------------------------------------- local clients (called by broker)

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        """A local client's publication. False: its topic stays local. True: `done(code)` once it is durable.

        A protected topic that we may not publish on is refused: it neither stays local nor goes out in clear.
        """
        gateway, topic = self._gateway, publication.topic
        if client_id and topic in self.own_topics:
            self.figures.count(Count("own_topics_refused"))
            done(NOT_AUTHORIZED)
            return True
        if not isinstance(gateway, GatewayNode) or constrained.stays_here(topic):
            return False
        if gateway.publisher.sealer.secret_for(topic) is None and not any(matches(f, topic) for f in self._shared):
            return False
        response = publication.response_topic
        if not self._may_publish(gateway, topic):
            self.figures.count(Count("publish_refused"))
            done(NOT_AUTHORIZED)
        elif not self._fits(gateway, publication):
            self.figures.count(Count("publish_refused"))
            log.warning("refused a publication of %s: too large for a majority of our replicas", client_id)
            done(PACKET_TOO_LARGE)
        elif response is not None and gateway.publisher.sealer.secret_for(response) is None:
            log.warning("refused a publication of %s: its response topic is in no protected scope", client_id)
            done(TOPIC_NAME_INVALID)
        else:
            self._outgoing.take(publication, done)
        return True

    def may_leave(self, topic: str) -> bool:
        """Whether a bridge may hand a local topic to an ordinary broker: it is in no scope, plain, or ours to read."""
        gateway = self._gateway
        secret = gateway.publisher.sealer.secret_for(topic) if gateway is not None else None
        if secret is None:
            return not any(matches(f, topic) for f in self._shared)
        overlay = self._keeping.overlay
        epoch = overlay.policy.calendar.at(self._clock())
        return secret.scope.mode is Mode.PLAIN or overlay.may_read(self.figures.name, secret.scope, epoch)

    def _fits(self, gateway: GatewayNode, publication: Publication) -> bool:
        """Whether enough replicas to recombine a key take a packet of this size. Else it would be lost in silence."""
        if len(publication.payload) < SMALL_BYTES and not publication.properties:
            return True
        home = gateway.publisher.view
        limit = self._dials.packet_limit(home.members, home.threshold)
        return gateway.publisher.sealer.packet_bytes(publication) <= limit

    def _may_publish(self, gateway: GatewayNode, topic: str) -> bool:
        """Asked for every publication: remembered until the epoch ends or the overlay changes."""
        now = self._clock()
        epoch = self._keeping.overlay.policy.calendar.at(now)
        if epoch != self._rights_epoch or len(self._rights) >= RIGHTS_MAX:
            self._rights.clear()
            self._rights_epoch = epoch
        allowed = self._rights.get(topic)
        if allowed is None:
            allowed = gateway.publisher.sealer.may_publish(topic, now) and self._is_sealed_or_plain(gateway, topic)
            if not allowed and all(self._rights.values()):  # said once an epoch, not for every topic
                log.warning("refused a publication: the overlay's policy gives us no right to its protected topic now")
            self._rights[topic] = allowed
        return allowed

    def _is_sealed_or_plain(self, gateway: GatewayNode, topic: str) -> bool:
        """Whether the scope still does with the topic what our configuration says."""
        secret = gateway.publisher.sealer.secret_for(topic)
        if secret is None or secret.scope.mode is not Mode.PLAIN:
            return secret is not None
        return any(matches(f, topic) for f in self._plain)

    def subscribed(self, topic_filter: str) -> None:
        """The first local subscription of a filter."""
        if not constrained.stays_here(topic_filter):
            self._handle(Subscribed(topic_filter))

    def unsubscribed(self, topic_filter: str) -> None:
        if not constrained.stays_here(topic_filter):
            self._handle(Unsubscribed(topic_filter))

    def group_joined(self, group: str, topic_filter: str) -> None:
        """A shared group has local members."""
        self._handle(GroupJoined(group, topic_filter))

    def group_left(self, group: str, topic_filter: str) -> None:
        self._handle(GroupLeft(group, topic_filter))

    def entity_event(self, event: AvailabilityEvent) -> None:
        """What a local client did, for its availability topic."""
        machine = self._entities
        if machine is None:
            return
        for effect in machine.handle(event, self._clock()):
            if isinstance(effect, Announce):
                self._announce(effect.publication)
            else:
                self.figures.count(effect)
        self._schedule("availability", machine.next_deadline, partial(self.entity_event, Tick()))

    def _announce(self, publication: Publication) -> None:
        assert self._broker is not None
        self._broker.deliver_local(publication)
        self.publish("", publication, lambda code: None)

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
        return self._inner.keeper.removed or name in self._inner.peers

    def peer_connected(self, peer: str, session: object) -> None:
        """A member dialled us. A replica only sends on this connection: for ours to it, we dial."""
        if self._flow is not None:
            self._flow.reconnected(peer)
        if peer not in self._dials:
            self._handle(LinkUp(peer))

    def peer_disconnected(self, peer: str) -> None:
        known = self._shown.pop(peer, None) is not None
        if known and peer not in self._dials:
            self._handle(LinkDown(peer))

    def peer_published(self, peer: str, publish: Publish) -> Callable[[Done], bool] | None:
        self.figures.received(peer, len(publish.payload))
        flow = self._flow
        if flow is None:
            self._received(peer, publish)
            return None
        flow.begin()
        self._received(peer, publish)
        return flow.hold(peer, publish)

    # ------------------------------------------------------------------------ members (called by dials)

    def link_up(self, peer: str) -> None:
        self._wires.link_up(peer)

    def link_down(self, peer: str) -> None:
        self._wires.link_down(peer)

    def link_published(self, peer: str, publish: Publish, client: Client) -> None:
        self._received(peer, publish)

    def link_watched(self, peer: str, ticket: int) -> None:
        self._handle(Acked(peer, ticket))

    def _received(self, peer: str, publish: Publish) -> None:
        wire = Wire(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties.user)
        self._handle(Received(peer, wire))

    # ------------------------------------------------------------------------------------ the machine

    def _handle(self, event: Event) -> None:
        self._perform(self._node.handle(event, self._clock()))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._run(effect)
        if self._timer_due is None:
            # Once for all events of a turn of the loop: to ask the node costs as much as to forward a repetition.
            self._timer_due = asyncio.get_running_loop().call_soon(self._set_timer)
        if self._refill_due is None and self._outgoing.wants_refill:
            self._refill_due = asyncio.get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        self._refill_due = None
        self._outgoing.refill(self._clock())

    def _set_timer(self) -> None:
        self._timer_due = None
        self._schedule("node", self._node.next_deadline, partial(self._handle, Tick()))

    def _run(self, effect: Effect) -> None:
        match effect:
            case Count():
                self.figures.count(effect)
            case Send(peer, wire, ticket):
                self._wires.send(peer, wire, ticket)
            case Deliver() | DeliverShared() if self.own_topics.are_ours(effect.publication.topic):
                self.figures.count(Count("own_topics_refused"))  # of a member whose rights reach too far
            case Deliver():
                assert self._broker is not None
                self._broker.deliver_local(effect.publication, effect.groups_lost)
            case DeliverShared(group, topic_filter, publication):
                assert self._broker is not None
                self._broker.deliver_shared((group, topic_filter), publication)
            case Forget(sequences):
                self._store.forget(sequences)
            case Watch():
                self._dials.watch(effect)
            case Blame(member, named, why):
                if self.figures.blame(effect):
                    log.warning("%s %s: %s", "named" if named else "suspected", member, why)
            case Republish(publications):
                for publication in publications:
                    self._outgoing.take(publication, lambda code: None)
            case KeysChanged():
                self._keeping.keys_changed(self._clock())
            case KeepMaterial(material):
                self._keeping.keep_material(material)
            case KeepArchive(epoch, content):
                self._keeping.keep_archive(epoch, content)
            case Adopt():
                self._adopt(effect)

    def _schedule(self, what: str, deadline: float | None, call: Callable[[], None]) -> None:
        timer, due = self._timers.get(what, (None, None))
        if timer is not None:
            if due == deadline and not timer.cancelled() and timer.when() > asyncio.get_running_loop().time():
                return  # the usual case: most events change no deadline
            timer.cancel()
            del self._timers[what]
        if deadline is not None:
            delay_s = max(0.001, deadline - self._clock())
            self._timers[what] = (asyncio.get_running_loop().call_later(delay_s, call), deadline)

    # --------------------------------------------------------------------------------- the overlay changes

    def _peers_to_dial(self) -> list[str]:
        return self._keeping.listeners(sorted(self._inner.peers))

    def _adopt(self, effect: Adopt) -> None:
        """The node works by a newer overlay already, or by other views of it: files, TLS and links follow."""
        if effect.outcome is Adoption.RESTART:
            self._keeping.keep_for_restart(effect.overlay)
            return
        rotated = self._keeping.adopt(effect.overlay)
        if effect.outcome is Adoption.REMOVED:
            self._keeping.removed()
        self._rights.clear()
        self.figures.keep(effect.overlay.members)
        self._dials.adopt(self._peers_to_dial())
        for peer, certificate in list(self._shown.items()):
            if self._keeping.recognise(certificate) != peer or not self._is_neighbour(peer):
                del self._shown[peer]
                log.info("closed the link of %s: the overlay lists it, or its key, for us no longer", peer)
                self._drop(peer)
        if rotated is not None:  # not from inside the handling of another event
            loop = asyncio.get_running_loop()
            loop.call_soon(self._handle, Rotated(rotated))
            loop.call_soon(self._dials.redial)

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            document = self._keeping.document()
            if document is not None:
                self._offer(document)

    def _offer(self, document: bytes) -> None:
        try:
            self._perform(self._inner.offered(document, self._clock()))
        except OverlayError as error:
            log.error("the new overlay file is not adopted: %s", error)
        self._keeping.complete()

    async def _show_figures(self) -> None:
        while True:
            assert self._broker is not None
            self._keeping.tick(self._clock())
            self._outgoing.look(self._clock())
            self._perform(())
            if self._flow is not None:
                self._flow.tick(self._clock())
            body = self.figures.to_json(**self.gauges())
            self._broker.deliver_local(Publication(FIGURES_TOPIC, body, retain=True, time_ms=int(self._clock() * 1000)))
            await asyncio.sleep(FIGURES_EVERY_S)
