"""To whom one replica gives a publication, and what it says beside it: all that leads to somebody who wants it.

By regions it goes to every replica of a next region behind which somebody wants its scope, and to the gateways here
that do; by planes as `plane_routing` says. Of a scope that shows attributes those are left out whose covers nothing in
it fits, and who gets the next one is told so (`filtering`). Not here: who stated what (`wire.statements`), sending
(`forwarder`, `content_relay`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bridge.contract import PeerLoad, UserProperties
from bridge.document import Overlay, Scope
from bridge.replica.filtering import Filtering
from bridge.replica.plane_routing import PlaneRouting, PublicationName
from bridge.topology import Routes
from bridge.wire import PROPERTY_ROUTE, PROPERTY_SKIP, Admitted, RoutingTable, ShownList, read_skip, read_vector
from keys.envelope import MessageHeader
from keys.identity import Certificate


class Destinations:
    """Of one replica."""

    def __init__(self, routes: Routes, routing: RoutingTable) -> None:
        self._routes, self._routing = routes, routing
        self._filtering = Filtering()
        self.planes = PlaneRouting(routes, routing.wanting)

    def adopt(self, overlay: Overlay) -> None:
        """Another version of the overlay: forget who is no member any more."""
        self.planes.adopt()
        self._filtering.keep(overlay.members, overlay.by_party)

    def loaded(self, loads: Iterable[PeerLoad], now: float) -> list[str]:
        """How loaded our links are; peers whose link stands still from now on."""
        return self.planes.loaded(loads, now)

    # --------------------------------------------------------------------------------------- who wants what

    def wanting(self, publisher: Certificate, scope: Scope, tree: int, now: float) -> list[str]:
        """Peers to send to: replicas of next regions, and gateways here, that somebody's statement leads to."""
        return _peers_on(self._ways(publisher, scope, tree, now))

    def _ways(self, publisher: Certificate, scope: Scope, tree: int, now: float) -> list[tuple[str, Sequence[str]]]:
        """Who wants a scope, each with the peers to send to for that."""
        arrival = self._routes.towards(publisher.region, tree)
        ways: list[tuple[str, Sequence[str]]] = []
        for member in self._routing.wanting(scope, now):
            direction = self._routes.towards(self._routes.region_of(member), tree)
            if direction is None:
                if member != publisher.name and member in self._routes.up:
                    ways.append((member, (member,)))
            elif direction != arrival and self._routes.topology.carries(direction, scope):
                ways.append((member, self._routes.members_up(direction)))
        return ways

    # ------------------------------------------------------------------------------------- one publication

    def by_regions(self, admitted: Admitted, shown: ShownList | None, now: float) -> list[str]:
        """Who gets a publication; those who want its scope, but not what it shows, are noted. What is retained goes to
        everybody, who would else keep a former value."""
        header, scope = admitted.header, admitted.scope
        ways = self._ways(admitted.publisher, scope, admitted.tree, now)
        everybody = peers = _peers_on(ways)
        if not scope.shown:
            return everybody
        if shown is not None and not header.retain:
            uninterested = self._routing.left_out(scope, shown)
            peers = _peers_on([way for way in ways if way[0] not in uninterested])
        left_out = [peer for peer in everybody if peer not in peers]
        self._filtering.passes(scope.filter, header, {peer: (peer,) for peer in peers}, left_out)
        return peers

    def by_planes(self, admitted: Admitted, shown: ShownList | None, vector: int, now: float) -> list[str] | None:
        """The same of what goes by planes, for every copy; None: it does not, here and now."""
        header, scope = admitted.header, admitted.scope
        if not scope.by_planes or header.retain:
            return None
        uninterested = self._routing.left_out(scope, shown) if shown is not None else frozenset()
        peers = self.planes.peers(name_of(header), admitted, vector, now, uninterested)
        if peers is not None:
            self._note(admitted)
        return peers

    def again(self, admitted: Admitted, peer: str, now: float) -> list[str]:
        """To whom a publication goes that a peer got whose link stands still."""
        others = self.planes.again(name_of(admitted.header), admitted, peer, now)
        self._note(admitted)
        return others

    def _note(self, admitted: Admitted) -> None:
        if admitted.scope.shown:
            given, left_out = self.planes.ways(name_of(admitted.header))
            self._filtering.passes(admitted.scope.filter, admitted.header, given, left_out)

    # ----------------------------------------------------------------------------------- what is said beside it

    def beside(self, peer: str, admitted: Admitted) -> UserProperties:
        """What the copy for one peer says: what was left out before it, and which planes it is for."""
        found: UserProperties = ()
        if (low := self._filtering.claim(peer, admitted.scope.filter, admitted.header)) is not None:
            found += ((PROPERTY_SKIP, str(low)),)
        if vector := self.planes.vector(name_of(admitted.header), peer):
            found += ((PROPERTY_ROUTE, str(vector)),)
        return found

    def heard(
        self, peer: str, admitted: Admitted, properties: Mapping[str, str], now: float
    ) -> list[tuple[str, PublicationName]]:
        """What a replica of the region before says about a gap; to whom we may say more then, beside which publication.
        Raises BadFrame."""
        header, scope, topology = admitted.header, admitted.scope, self._routes.topology
        low = read_skip(properties, header)
        before = topology.last_before(admitted.publisher.region, self._routes.region, admitted.tree)
        if low is None or before is None or peer not in self._routes.overlay.views[before].members:
            return []
        ways = self.planes.own_ways(admitted, peer, read_vector(properties), now) if scope.by_planes else None
        if ways is not None:
            told = self._filtering.believed(scope.filter, header, low, ways)
        elif not scope.by_planes:
            threshold = self._routes.overlay.views[before].threshold
            told = self._filtering.heard(scope.filter, header, peer, low, threshold)
        else:
            told = []
        return [(other, (header.publisher, number)) for other, number in told]


def name_of(header: MessageHeader) -> PublicationName:
    """What a publication is remembered by."""
    return header.publisher, header.sequence


def _peers_on(ways: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    return list(dict.fromkeys([peer for _, peers in ways for peer in peers]))
