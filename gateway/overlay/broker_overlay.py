"""The overlay of a broker: members that dialled it, members that it dialled, and the broker's node.

`BrokerOverlay` is the part that all roles have; `gateway_overlay`, `replica_overlay` and `key_server_overlay` add the
part of one role each. Events come from four sides: local clients (`publish`, `filter_subscribed`, ... called by the
broker), members that dialled us (`peer_*`), members we dialled (`link_*`), and the driver, which watches the clock and
the overlay file and brings every effect back here. A gateway dials every replica of its region and every key server;
replicas dial each other, a single connection for each direction, so that the sender is always the MQTT client. No rule
of the protocol is here: they are in `bridge`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bridge.contract import (
    Acked,
    Count,
    Event,
    LinkDown,
    LinkUp,
    NotTaken,
    OverlayNode,
    Publication,
    Received,
    Wire,
)
from bridge.document import Overlay, OwnTopics
from bridge.predicates import Predicate
from bridge.traces import AvailabilityEvent
from gateway.base import FIGURES_TOPIC, Figures, ScopeSpan
from gateway.base.followed import FollowedMessages
from gateway.base.log_events import LogEvent
from gateway.base.rhythm import until_next
from gateway.client import MqttClient
from gateway.clients import Done, LocalBroker, PeerRefusal
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import ReasonCode
from gateway.outbox import Store
from gateway.overlay.backpressure import Backpressure
from gateway.overlay.dials import Dials
from gateway.overlay.driver import Driver, NoHands
from gateway.overlay.followed_wires import FollowedWires
from gateway.overlay.local_rights import ScopeRights
from gateway.overlay.member_files import Keeping
from gateway.overlay.peer_refusals import refusal
from gateway.overlay.wires import Wires

log = logging.getLogger("veilmq.links")

FIGURES_EVERY_S = 1.0
REFUSED_SHOWN_S = 150.0  # a publisher offers again what was refused after 60 s at most


class OverlayParts(NamedTuple):
    """Parts of a `BrokerOverlay`, for health and console, which look and change nothing."""

    node: OverlayNode
    store: Store
    keeping: Keeping
    dials: Dials


class BrokerOverlay(NoHands):
    """The overlay of a broker in any role. Made by `gateway.party.build`; given to `EdgeBroker` as its `overlay`.

    `flow`: of a replica, which acknowledges when the next regions have room.
    """

    def __init__(
        self,
        node: OverlayNode,
        figures: Figures,
        store: Store,
        keeping: Keeping,
        dials: Dials,
        clock: Callable[[], float] = time.time,
        flow: Backpressure | None = None,
    ) -> None:
        self._node, self.figures, self._clock = node, figures, clock
        self._store, self._keeping, self._dials = store, keeping, dials
        self._driver = Driver(node, keeping.live, dials, figures, self, clock)
        self._wires = Wires(dials, figures, self._handle, flow, clock)
        self.own_topics = OwnTopics()
        self._broker: LocalBroker | None = None
        self._drop: Callable[[str], None] = lambda peer: None
        self._refusal = ""  # why what is handled at this moment is refused
        self._refused: dict[str, tuple[str, float]] = {}  # by neighbour: why what it published was, and when last
        self._shown: dict[str, bytes] = {}  # members that dialled us, with the certificate that they showed
        self._showing: asyncio.Task[None] | None = None
        self._followed: FollowedWires | None = None

    def follow_messages(self, followed: FollowedMessages | None) -> None:
        """Says the steps of messages there from now on; None: nowhere."""
        keeping, counts = self._keeping, self.figures.counts
        self._followed = None if followed is None else FollowedWires(followed, lambda: keeping.overlay, counts)

    # ------------------------------------------------------------------------------------------- lifetime

    def start(self, broker: LocalBroker, drop: Callable[[str], None] | None = None) -> None:
        """Takes up the state on disk, then dials; the broker serves already. `drop` ends a member's session."""
        self._broker = broker
        self._drop = drop or self._drop
        self._restore(broker)
        self._dials.start(self.peers_to_dial(), self)
        self._wires.start(broker)
        self._begin(broker)
        self._showing = asyncio.get_running_loop().create_task(self._show_figures(), name="figures")
        self._driver.start()

    def _restore(self, broker: LocalBroker) -> None:
        """Takes up the state of a former process, before a link is dialled."""

    def _begin(self, broker: LocalBroker) -> None:
        """Begins the work of the role; links are dialled already."""

    async def stop(self) -> None:
        """Closes links and store; the outbox is sent after the next start."""
        await self._driver.stop()
        if self._showing is not None:
            self._showing.cancel()
            await asyncio.gather(self._showing, return_exceptions=True)
        await self._dials.close()
        self._store.close()

    @property
    def parts(self) -> OverlayParts:
        """The parts that health and console look at."""
        return OverlayParts(self._node, self._store, self._keeping, self._dials)

    def gauges(self) -> dict[str, int]:
        """Returns the present values for the figures."""
        policy = self._keeping.overlay.policy
        return {
            "outbox_depth": self._store.depth,
            "outbox_bytes": self._store.held_bytes,
            "links_up": len(self._dials.connected_peers),
            "links": len(self._dials),
            "epoch": policy.calendar.epoch_at(self._clock()),
            "policy_version": policy.version,
        }

    # -------------------------------------------------------------------- local clients (called by broker)

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        """Takes a publication of a local client. False: its topic stays local. True: `done(code)` is called once."""
        if client_id and publication.topic in self.own_topics:
            self.figures.count_effect(Count("own_topics_refused"))
            done(ReasonCode.NOT_AUTHORIZED)
            return True
        return False

    def publish_run(self, client_id: str, run: Sequence[Publication], done: Callable[[int], None]) -> int:
        """Takes leading publications of a run at once, and returns their number; 0 where clients publish nothing."""
        return 0

    def may_leave(self, topic: str) -> bool:
        """Returns True if a bridge may hand a local topic to an ordinary broker."""
        return True

    def filter_subscribed(self, topic_filter: str, wanted: Predicate | None = None, narrows: bool = False) -> bool:
        """Takes the first local subscription of a filter, or a further one that wants something else. False: a defect
        of ours prevents it.
        """
        return True

    def filter_unsubscribed(self, topic_filter: str) -> None:
        """Takes the end of the last local subscription of a filter."""

    def entity_event(self, event: AvailabilityEvent) -> None:
        """Takes an event of a local client, for its availability topic."""

    def rights(self) -> tuple[ScopeRights, ...]:
        """Returns the rights of a gateway in each of its scopes; empty at other members."""
        return ()

    def reaches(self) -> list[ScopeSpan]:
        """Returns how far histories reach, as far as this member knows."""
        return []

    @property
    def has_history(self) -> bool:
        """True if local clients may read a history."""
        return False

    def refusal_reasons(self, now: float) -> dict[str, str]:
        """Returns the last reason for which publications were refused, by neighbour, within `REFUSED_SHOWN_S`."""
        self._refused = {peer: last for peer, last in self._refused.items() if now - last[1] < REFUSED_SHOWN_S}
        return {peer: reason for peer, (reason, _) in self._refused.items()}

    # ------------------------------------------------------------------------ members (called by broker)

    def recognise(self, certificate_der: bytes, client_id: str) -> str | None:
        """Returns the name of the neighbour with a TLS certificate; None for any other, or if the client id is not the
        name.
        """
        name = self._keeping.recognise(certificate_der)
        if name is None or name != client_id or not self._is_neighbour(name):
            return None
        self._shown[name] = certificate_der
        return name

    def _is_neighbour(self, name: str) -> bool:
        """Returns False for a member of elsewhere and for a detached replica; True for all once we are removed."""
        return self._node.removed or name in self._node.peers

    def peer_connected(self, peer: str, session: object) -> None:
        """Takes the connection of a member. A replica only sends on this connection: for ours to it, we dial."""
        if peer not in self._dials:
            self._handle(LinkUp(peer))

    def peer_disconnected(self, peer: str) -> None:
        known = self._shown.pop(peer, None) is not None
        if known and peer not in self._dials:
            self._handle(LinkDown(peer))

    def peer_published(self, peer: str, publish: Publish) -> Callable[[Done], bool] | PeerRefusal | None:
        """Takes a PUBLISH of a member. None: it is acknowledged now; a refusal: it is refused now."""
        self.figures.count_received(peer, len(publish.payload))
        self._refusal = ""
        self._take_publish(peer, publish)
        if not self._refusal:
            return None
        self._refused[peer] = self._refusal, self._clock()
        return refusal(self._refusal, self._clock())

    # ------------------------------------------------------------------------ members (called by dials)

    def link_up(self, peer: str) -> None:
        self._wires.link_up(peer)

    def link_down(self, peer: str) -> None:
        self._wires.link_down(peer)

    def link_published(self, peer: str, publish: Publish, client: MqttClient) -> None:
        self._take_publish(peer, publish)

    def link_watched(self, peer: str, ticket: int) -> None:
        self._handle(Acked(peer, ticket))

    def _take_publish(self, peer: str, publish: Publish) -> None:
        wire = Wire(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties.user)
        if self._followed is None:
            self._handle(Received(peer, wire))
            return
        self._refusal = ""
        self._followed.handled(peer, wire, lambda: self._handle(Received(peer, wire)), lambda: self._refusal)

    # ------------------------------------------------------------------------------ hands of the driver

    def _handle(self, event: Event) -> bool:
        if self._followed is not None:
            if type(event) is Acked:
                self._followed.taken(event.peer, event.ticket)
            elif type(event) is NotTaken:
                self._followed.not_taken(event.peer, event.ticket, event.reason)
        return self._driver.handle(event)

    def refuse_wire(self, reason: str) -> None:
        self._refusal = reason

    def send_wire(self, peer: str, wire: Wire, ticket: int) -> None:
        if self._followed is not None:
            self._followed.sent(peer, wire)
        self._wires.send_wire(peer, wire, ticket)

    def keys_changed(self) -> None:
        self._keeping.keys_changed(self._clock())

    def adopted(self, overlay: Overlay, removed: bool) -> None:
        if removed:
            self._keeping.removed()
        for peer, certificate in list(self._shown.items()):
            if self._keeping.recognise(certificate) != peer or not self._is_neighbour(peer):
                del self._shown[peer]
                LogEvent.LINK_CLOSED.say(log, peer)
                self._drop(peer)

    def peers_to_dial(self) -> list[str]:
        return self._keeping.listeners(sorted(self._node.peers))

    async def _show_figures(self) -> None:
        while True:
            assert self._broker is not None
            self._keeping.end_epochs(self._clock())
            self._each_second(self._broker)
            body = self.figures.to_json(**self.gauges())
            self._broker.deliver_local(Publication(FIGURES_TOPIC, body, retain=True, time_ms=int(self._clock() * 1000)))
            await asyncio.sleep(until_next(FIGURES_EVERY_S))

    def _each_second(self, broker: LocalBroker) -> None:
        """Does the role's work of each second."""
