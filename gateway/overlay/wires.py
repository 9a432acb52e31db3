"""How a node's wires leave: over links we dialled, else through the session of a member that dialled us.

The node hears of a link what it must know: at a replica, a lane towards the next region lives as long as its session,
so a connection coming back is no news unless the peer forgot it. What does not fit into a lane is lost, and the peer
is begun anew with once there is room. Not here: when a replica acknowledges (`backpressure`), connections (`dials`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from bridge.contract import Acked, Count, Event, LinkDown, LinkUp, Lost, NotTaken, UserProperties, Wire
from bridge.contract.refusing import Reason
from gateway.base import Figures
from gateway.base.peer_clock import ahead_s
from gateway.client import MqttClient
from gateway.clients import LocalBroker
from gateway.mqtt5.packets import Properties
from gateway.overlay.backpressure import Backpressure, is_control
from gateway.overlay.dials import Dials
from gateway.overlay.peer_refusals import reason_in
from keys.envelope import PROPERTY_KEY

RELINK_S = 1.0
REFUSED_S = 10.0  # until a peer that refused publications is offered them again
PACKET_TOO_LARGE = 0x95


class Wires:
    """The sender of a node's wires. `handle` gives the node an event; `flow` is a replica's."""

    def __init__(
        self,
        dials: Dials,
        figures: Figures,
        handle: Callable[[Event], object],
        flow: Backpressure | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._dials, self._figures, self._handle, self.flow = dials, figures, handle, flow
        self._clock = clock
        self._broker: LocalBroker | None = None
        self._cut: set[str] = set()  # peers whose queue was full: the node sends them nothing until there is room
        self._lanes: dict[str, MqttClient] = {}  # clients towards replicas of next regions that the node knows of

    def start(self, broker: LocalBroker) -> None:
        """We dial already: what comes before a peer is there waits for it in its lane."""
        self._broker = broker
        if self.flow is not None:
            self._lanes = dict(self._dials)
            for peer in self._lanes:
                self._handle(LinkUp(peer))

    # --------------------------------------------------------------------------------------- links up and down

    def link_up(self, peer: str) -> None:
        """A connection we dialled stands."""
        if self.flow is None:
            self._cut.discard(peer)
            self._handle(LinkUp(peer))
            return
        self.flow.member_up(peer)
        client = self._dials[peer]
        lost = client.figures.connections > 1 and not client.session_present
        if (lost or self._lanes.get(peer) is not client) and peer not in self._cut:
            self._lanes[peer] = client
            self._handle(LinkUp(peer))

    def link_down(self, peer: str) -> None:
        if self.flow is None:
            self._handle(LinkDown(peer))
        else:
            self.flow.down(peer, self._clock())

    # ------------------------------------------------------------------------------------------------ sending

    def send_wire(self, peer: str, wire: Wire, ticket: int) -> None:
        """Publish to a peer; `Acked` follows if there is a ticket."""
        client = self._dials.get(peer)
        if client is not None:
            urgent = is_control(wire.topic)
            on_ack: Callable[[], object] | None = None
            if ticket:
                on_ack = partial(self._handle, Acked(peer, ticket))
            elif self.flow is not None and not urgent:
                on_ack = self.flow.passing(peer, client)
            on_refused = partial(self._take_refusal, peer, ticket, len(wire.payload)) if ticket else None
            properties: UserProperties | Properties = wire.properties
            if wire.expiry_s is not None:
                properties = Properties(user=wire.properties, message_expiry_s=wire.expiry_s)
            sent = client.publish(wire.topic, wire.payload, 1, wire.retain, properties, on_ack, on_refused, urgent)
        else:
            assert self._broker is not None
            sent = self._broker.send_to_peer(peer, wire.topic, wire.payload, wire.properties, lambda code: None)
        if not sent:
            self._figures.count_effect(Count("link_overflow", 1, peer))
            lost = ticket if self.flow is None else self.flow.is_full(peer)  # else it is too large for the peer
            if lost and client is not None and peer not in self._cut:
                self._relink(peer, client)
            elif client is None and (key := dict(wire.properties).get(PROPERTY_KEY)):
                asyncio.get_running_loop().call_soon(self._handle, Lost(peer, key))  # we are in the midst of effects

    def _take_refusal(self, peer: str, ticket: int, size: int, code: int) -> None:
        """A peer will not have a publication of so many bytes. What is too large for it shows what it takes."""
        self._figures.count_effect(Count("link_refused", 1, peer))
        client = self._dials.get(peer)
        reason = None if client is None else reason_in(client.acks.refusal)
        if reason is not None and client is not None:
            client.clock_ahead_s = ahead_s(client.acks.refusal.user, self._clock())
            asyncio.get_running_loop().call_soon(self._handle, NotTaken(peer, ticket, reason))
            return
        if code == PACKET_TOO_LARGE:
            self._dials.showed(peer, size)
            told = NotTaken(peer, ticket, Reason.SIZE)
            asyncio.get_running_loop().call_soon(self._handle, told)  # we are in the midst of effects
        elif client is not None and peer not in self._cut:
            client.note_failure(
                f"{peer} refuses our publications (0x{code:02x}); ask who runs it for the right and the room"
            )
            self._relink(peer, client, REFUSED_S)

    def _relink(self, peer: str, client: MqttClient, pause_s: float = RELINK_S) -> None:
        """Begins anew with a peer whose wires were not taken and so will never be acknowledged; the peer repeats what
        it
        lacks.

        A lane that lost wires begins anew, with statements and keys, once the peer has taken those the lane holds.
        """
        self._cut.add(peer)
        self._handle(LinkDown(peer))
        loop = asyncio.get_running_loop()

        def again() -> None:
            if self.flow is not None and self._dials.get(peer) is client and self.flow.is_full(peer):
                loop.call_later(RELINK_S, again)
                return
            self._cut.discard(peer)
            if self._dials.get(peer) is client and (client.connected or self.flow is not None):
                self._handle(LinkUp(peer))

        loop.call_later(pause_s, again)
