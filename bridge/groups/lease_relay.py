"""Relay of leases of shared groups: a replica passes them on along the tree, and to gateways wanting the scope.

Leases spread like statements, but gateways need leases too, for the choice (`leases`). A latecomer receives all known
leases. Not here: the server of a group, unknown to a replica if the group's names are hidden.
"""

from __future__ import annotations

from bridge.contract import Count, Deferrals, Effect, Received, Send, Wire, earliest
from bridge.document import Overlay
from bridge.groups.leases import GROUPS_TOPIC, Lease, LeaseTable
from bridge.topology import Routes
from bridge.wire import RoutingTable, Statement, refused
from keys.errors import KeysError
from keys.identity import Role

TOLD_BURST = 8  # statements of a gateway that are answered at once with all leases of the scope ...
TOLD_EVERY_S = 60.0  # ... and then once a minute, the others later
COMEBACKS_BURST, COMEBACKS_EVERY_S = 8, 10.0  # of one link that comes up; beyond that all leases are sent later


class LeaseRelay:
    """A replica's relay of leases. `routes` and `routing` are the forwarder's."""

    def __init__(self, overlay: Overlay, routes: Routes, routing: RoutingTable) -> None:
        self._overlay, self._routes, self._routing = overlay, routes, routing
        self._table = LeaseTable(overlay)
        self._told: Deferrals[tuple[str, str]] = Deferrals(TOLD_BURST, TOLD_EVERY_S)  # by gateway and scope
        self._comebacks: Deferrals[str] = Deferrals(COMEBACKS_BURST, COMEBACKS_EVERY_S)

    def take_lease(self, event: Received, now: float) -> list[Effect]:
        """Takes a lease from a gateway here or from a neighbouring region, and passes the first copy on."""
        try:
            lease = Lease.decode(event.wire.payload)
            if not self._table.accept(lease, now):
                return []
        except KeysError as error:
            return refused(event.peer, error)
        came_from = self._routes.region_of(event.peer) if self._routes.is_replica(event.peer) else None
        peers = [
            peer
            for region in self._routes.topology.neighbours(self._routes.region)
            if region != came_from
            for peer in self._routes.replicas_up(region)
        ]
        peers += [peer for peer in self._wanting(lease.scope, now) if peer not in (event.peer, lease.member)]
        return [Count("leases"), *(Send(peer, Wire(GROUPS_TOPIC, lease.encode())) for peer in peers)]

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Sends the leases to a neighbour that connected, maybe without memory; later, if it reconnects too often.

        A gateway gets its own leases too: of its former process.
        """
        if not self._comebacks.spend_one(peer, now):
            return []
        if self._routes.is_replica(peer):
            theirs = self._routes.region_of(peer)
            leases = [lease for lease in self._table if not self._routes.leads_back(lease.member, theirs)]
        else:
            scopes = {lease.scope for lease in self._table}
            wanted = {scope for scope in scopes if peer in self._wanting(scope, now)}
            leases = [lease for lease in self._table if lease.scope in wanted]
        return [Send(peer, Wire(GROUPS_TOPIC, lease.encode())) for lease in leases]

    def stated(self, event: Received, now: float) -> list[Effect]:
        """Sends the leases of a scope to a gateway whose new statement wants the scope."""
        statement = Statement.decode(event.wire.payload)
        return self._leases_of(event.peer, statement.filter, now) if statement.member == event.peer else []

    def _leases_of(self, gateway: str, wire_filter: str, now: float) -> list[Effect]:
        """Returns all leases of a scope for a gateway wanting it; postpones them if it asks too often."""
        if gateway not in self._wanting(wire_filter, now) or not self._told.spend_one((gateway, wire_filter), now):
            return []
        leases = [lease for lease in self._table if lease.scope == wire_filter]
        return [Send(gateway, Wire(GROUPS_TOPIC, lease.encode())) for lease in leases]

    def tick(self, now: float) -> list[Effect]:
        """Sends the postponed leases."""
        up = [peer for peer in self._comebacks.due_keys(now) if peer in self._routes.up]
        effects = [effect for peer in up for effect in self.link_up(peer, now)]
        return effects + [effect for asked in self._told.due_keys(now) for effect in self._leases_of(*asked, now)]

    @property
    def next_deadline(self) -> float | None:
        return earliest(self._comebacks.next_deadline, self._told.next_deadline)

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, or other views or trees."""
        self._overlay = overlay
        self._table.adopt_overlay(overlay)
        self._told.forget_unless(lambda told: told[0] in overlay.members)
        self._comebacks.forget_unless(overlay.members.__contains__)

    def _wanting(self, wire_filter: str, now: float) -> list[str]:
        """Returns the connected gateways of our region wanting the scope."""
        scope = self._overlay.scope_named(wire_filter)
        if scope is None:
            return []
        members = self._routing.wanting(scope, now)
        here = [m for m in members if m in self._routes.up and self._routes.region_of(m) == self._routes.region]
        return [m for m in here if self._overlay.certificate(m).role is Role.GATEWAY]
