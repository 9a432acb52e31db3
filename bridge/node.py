"""START HERE: one party of the overlay, its machines wired together.

A gateway's publication takes this way: `Committed` -> `sealing.Publisher` -> `Send` to every replica of its
region -> `forwarding.Forwarder` at each replica, region after region -> `collecting.Collector` at the
subscribing gateway -> `Deliver`. Subscriptions go the other way: `Subscribed` -> `interest.Interest` -> a signed
statement -> `subscriptions.RoutingTable` at every replica. Who may do what stands in `views.Overlay`; what every
honest party checks first in `arriving.Admission`; what shares say about liars in `blame.Evidence`.

`GatewayNode` and `ReplicaNode` follow the contract of `machine`: the broker (gateway/links.py) and the simulator
(sim/kernel.py) drive the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keys.identity import Identity, Role

from .collecting import Collector
from .forwarding import Forwarder
from .interest import Interest
from .machine import (
    Acked,
    Blame,
    Committed,
    Count,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Received,
    Subscribed,
    Tick,
    Unsubscribed,
)
from .sealing import Publisher, ScopeSecret
from .views import Overlay


class GatewayNode:
    """A gateway: publishes what its devices send, collects what its clients want."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        random: Callable[[int], bytes],
        outgoing: Sequence[ScopeSecret] | None = None,
    ) -> None:
        """`secrets`: all that we may read; `outgoing`: the scopes that local publications leave by (None: all)."""
        sends = secrets if outgoing is None else outgoing
        self.publisher = Publisher(overlay, identity, name, sends, random)
        self.collector = Collector(overlay, name, secrets)
        self.interest = Interest(overlay, identity, name, secrets)
        self._replicas = frozenset(overlay.views[overlay.certificate(name).region].members)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Effects in the order in which they must happen. A stranger's event is refused."""
        match event:
            case LinkUp(peer) | LinkDown(peer) | Received(peer, _) | Acked(peer, _) if peer not in self._replicas:
                return [Count("refused", 1, "stranger"), Blame(peer, False, "not a replica of our region")]
            case Received():
                return self.collector.received(event, now)
            case Acked(_, ticket) if ticket > 0:
                return self.publisher.acked(event, now)
            case Acked():
                return self.interest.acked(event)
            case Committed():
                return self.publisher.committed(event, now)
            case LinkUp(peer):
                return self.interest.link_up(peer) + self.publisher.link_up(peer, now)
            case LinkDown(peer):
                return self.interest.link_down(peer) + self.publisher.link_down(peer)
            case Subscribed(topic_filter):
                before = self.interest.wanted()
                effects = self.interest.subscribed(topic_filter, now)
                for wire_filter in self.interest.wanted() - before:
                    self.collector.resumed(wire_filter)
                return effects
            case Unsubscribed(topic_filter):
                return self.interest.unsubscribed(topic_filter, now)
            case Tick():
                return self.collector.tick(now) + self.publisher.tick(now) + self.interest.tick(now)

    @property
    def next_deadline(self) -> float | None:
        deadlines = (
            self.collector.next_deadline,
            self.publisher.next_deadline,
            self.interest.next_deadline,
        )
        return min((d for d in deadlines if d is not None), default=None)


class ReplicaNode:
    """A replica: forwards what it cannot read. It has no deadlines of its own."""

    next_deadline: float | None = None

    def __init__(self, overlay: Overlay, name: str, seed: bytes) -> None:
        self.forwarder = Forwarder(overlay, name, seed)
        self._peers = peers_of(overlay, name)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Only links and what they bring concern a replica."""
        match event:
            case LinkUp(peer) | LinkDown(peer) | Received(peer, _) if peer not in self._peers:
                return [Count("refused", 1, "stranger"), Blame(peer, False, "not a neighbour of ours")]
            case Received():
                return self.forwarder.received(event, now)
            case LinkUp(peer):
                return self.forwarder.link_up(peer)
            case LinkDown(peer):
                return self.forwarder.link_down(peer)
            case _:
                return []


def peers_of(overlay: Overlay, name: str) -> frozenset[str]:
    """Members that `name` has a link with: gateways with all replicas of their region, replicas of
    neighbouring regions with each other."""
    me = overlay.certificate(name)
    if me.role is not Role.REPLICA:
        return frozenset(overlay.views[me.region].members)
    regions = overlay.neighbours(me.region)
    replicas = {member for region in regions for member in overlay.views[region].members}
    clients = {
        certificate.name
        for certificate in overlay.by_party.values()
        if certificate.region == me.region and certificate.role in (Role.GATEWAY, Role.INGEST)
    }
    return frozenset(replicas | clients)
