"""Where a publication of a scope with planes goes from one replica, by the rules that the simulator runs (C6 to C9).

The publisher's gateway gives each replica of its region a copy, as in any scope, so that its outbox keeps what it
promises; from there on a publication stays in its plane. A replica has a *duty* for its own plane or, where a vector
came along, for the planes that it names and not its own: so no two have one for the same plane. A copy along a link
that is congested takes a detour: another replica of the next region gets it, with a vector, and passes it on to the one
that stands there. For planes of a vector `topology.dynamic` says which neighbours get a copy and who of them takes over
those whose links are congested. What that leaves with a link that is not free we do in that replica's place: gateways
that hang on it have links with us too, and so has every replica of the next region (cross links). So a replica that is
stopped, slow or gone delays only what was on its way to it, and that goes again when its link has stood still for
`STILL_S`.

Nothing goes back: the region before ours on the way from the publisher, whose name is signed, gets no copy from us,
whoever passed it to us in whatever plane. So a detour ends in the region that it leads to, and a publication enters
each region once in each plane. Each replica does its duty once for each plane and publication. Repetitions are known by
their sequence as ever. Not here: loads themselves (the shell's, event `Loads`), what a wire looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from bridge.contract import LOADS_EVERY_S, FairTable, PeerLoad
from bridge.document import Scope
from bridge.topology import IDLE, LinkLoad, PlanePlace, Routes, dynamic, planes_of
from bridge.topology.congestion import THRESHOLD
from bridge.wire import Admitted

SERVED_MAX = 16_384
"""Publications whose planes we remember to have served."""
STILL_S = 0.25
"""A link on which something waits, and from which nothing was acknowledged for so long, stands still."""
PublicationName: TypeAlias = tuple[bytes, int]
"""Publisher and sequence."""


@dataclass(slots=True)
class _Link:
    load: LinkLoad = IDLE
    still_since: float = inf
    stands_still: bool = False


@dataclass(slots=True)
class _Served:
    """Of one publication the planes that we served; by peer, the planes that it answers for."""

    planes: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    uninterested: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Round:
    """What was said last of one publication: by peer the planes that are to be named to it, and its ways; ways on
    which nobody wants what it shows."""

    name: PublicationName
    vectors: dict[str, int] = field(default_factory=dict)
    ways: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()


_Wanted: TypeAlias = dict[int, dict[int | None, list[str]]]
"""By plane the next regions, None: ours, behind which gateways hang on it that want the scope."""


class PlaneRouting:
    """One replica's. `wanting(scope, now)`: members that want a scope."""

    def __init__(self, routes: Routes, wanting: Callable[[Scope, float], Iterable[str]]) -> None:
        self._routes, self._wanting = routes, wanting
        self._links: dict[str, _Link] = {}
        self._served: FairTable[PublicationName, _Served] = FairTable(SERVED_MAX)
        self._round = _Round((b"", 0))

    # ------------------------------------------------------------------------------------------------- loads

    def loaded(self, loads: Iterable[PeerLoad], now: float) -> list[str]:
        """What the shell says of our links, every `LOADS_EVERY_S`. Peers whose link stands still from now on."""
        found = []
        for peer, came, went, queued in loads:
            link = self._links.setdefault(peer, _Link())
            link.load = LinkLoad(queued, came / went if went else inf if came or queued else 1.0)
            if went or not queued:
                link.still_since, link.stands_still = inf, False
            elif link.still_since == inf:
                link.still_since = now - LOADS_EVERY_S
            if not link.stands_still and now - link.still_since >= STILL_S:
                link.stands_still = True
                found.append(peer)
        return found

    def adopt(self) -> None:
        """Another version of the overlay: forget links that are no more."""
        members = self._routes.overlay.members
        self._links = {peer: link for peer, link in self._links.items() if peer in members}

    def load(self, peer: str) -> LinkLoad:
        """Of our link to a peer: one that stands still, or is down, is never free."""
        link = self._links.get(peer)
        if peer not in self._routes.up or (link is not None and link.stands_still):
            return LinkLoad(THRESHOLD, inf)
        return IDLE if link is None else link.load

    # ---------------------------------------------------------------------------------------- one publication

    def peers(
        self,
        name: PublicationName,
        admitted: Admitted,
        vector: int,
        now: float,
        uninterested: frozenset[str] = frozenset(),
    ) -> list[str] | None:
        """To whom a publication goes now; None: the scope is not routed by planes, here and now. Asked for every copy:
        what was served before is left out. `uninterested`: who wants the scope, but not what this shows."""
        planes, scope = self._routes.planes, admitted.scope
        here = planes.place_of(scope, self._routes.name) if planes.open(scope) else None
        if here is None:
            return None
        served = self._served.get(name)
        if served is None:
            served = _Served(uninterested=uninterested)
            self._served.put(name, name[0], served)
        duties = (vector or 1 << here[1]) & ~served.planes
        served.planes |= duties
        copies = self._copies(scope, here, served, admitted, now)
        copies.serve(duties)
        return self._sends(name, served, scope, copies)

    def again(self, name: PublicationName, admitted: Admitted, peer: str, now: float) -> list[str]:
        """To whom a publication goes that a peer got whose link stands still."""
        planes, scope, served = self._routes.planes, admitted.scope, self._served.get(name)
        here = planes.place_of(scope, self._routes.name) if planes.open(scope) else None
        if here is None or served is None or peer not in served.sent:
            return []
        copies = self._copies(scope, here, served, admitted, now)
        region = self._routes.region_of(peer)
        for plane in planes_of(served.sent.pop(peer)):
            if region == here[0]:
                copies.stand_in(plane)
            else:
                copies.along(region, plane)
        copies.found.pop(peer, None)
        return self._sends(name, served, scope, copies)

    def _copies(self, scope: Scope, here: PlanePlace, served: _Served, admitted: Admitted, now: float) -> _Copies:
        everybody = self._wanted(admitted, now)
        if not served.uninterested:
            return _Copies(self, scope, here, everybody)
        wanted = self._wanted(admitted, now, served.uninterested)
        left_out = set(self._ways(wanted_by=everybody)) - set(self._ways(wanted_by=wanted))
        return _Copies(self, scope, here, wanted, frozenset(left_out))

    def _sends(self, name: PublicationName, served: _Served, scope: Scope, copies: _Copies) -> list[str]:
        said = self._round = _Round(name, left_out=copies.left_out)
        for peer, duties in copies.found.items():
            said.ways[peer] = (peer,)
            if duties:
                region, place = self._routes.region_of(peer), self._routes.planes.place_of(scope, peer)
                served.sent[peer] = served.sent.get(peer, 0) | duties
                said.vectors[peer] = duties if place is None or duties != 1 << place[1] else 0
                said.ways[peer] = tuple(self.replica((region, plane)) for plane in planes_of(duties))
        return list(copies.found)

    def vector(self, name: PublicationName, peer: str) -> int:
        """What the peer is to get along with the copy that `peers` or `again` said last."""
        return self._round.vectors.get(peer, 0) if self._round.name == name else 0

    def ways(self, name: PublicationName) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
        """Of what `peers` or `again` said last, the ways of each peer's copy, and those on which nobody wants it. A way
        is named by the gateway, or by the replica of its plane, at its end."""
        return (self._round.ways, self._round.left_out) if self._round.name == name else ({}, frozenset())

    def own_ways(self, admitted: Admitted, sender: str, vector: int, now: float) -> list[str] | None:
        """Returns the ways of the planes that a copy is for, as far as what the sender says of them is believed: it
        stands in that plane of the region before, or who stands there is away. So a bad replica deceives only those who
        hang on its own plane, or on one whose replica is away. None: it is believed of no plane."""
        planes, scope, home = self._routes.planes, admitted.scope, admitted.publisher.region
        here = planes.place_of(scope, self._routes.name) if planes.open(scope) else None
        before = self._routes.topology.last_before(home, self._routes.region, admitted.tree)
        if here is None or before is None:
            return None
        named = [plane for plane in planes_of(vector or 1 << here[1]) if plane < planes.count(scope)]
        hosts = {plane: self.replica((before, plane)) for plane in named}
        believed = [plane for plane, host in hosts.items() if sender == host or not self.is_up(host)]
        if not believed:
            return None
        wanted = self._wanted(admitted, now)
        return list(self._ways({plane: wanted.get(plane, {}) for plane in believed}))

    def _wanted(self, admitted: Admitted, now: float, but: frozenset[str] = frozenset()) -> _Wanted:
        """Who wants the scope, but these. Not those from where it came."""
        routes, scope, wanted = self._routes, admitted.scope, _Wanted()
        before = routes.topology.last_before(admitted.publisher.region, routes.region, admitted.tree)
        for member in self._wanting(scope, now):
            towards = routes.towards(routes.region_of(member), admitted.tree)
            goes = towards is None or (towards != before and routes.topology.carries(towards, scope))
            if goes and member != admitted.publisher.name and member not in but:
                plane = wanted.setdefault(routes.planes.host(scope, member), {})
                plane.setdefault(towards, []).append(member)
        return wanted

    def _ways(self, wanted_by: _Wanted) -> Iterable[str]:
        for plane, regions in wanted_by.items():
            for region, members in regions.items():
                yield from members if region is None else (self.replica((region, plane)),)

    def replicas(self, scope: Scope, region: int) -> list[str]:
        """Of a region, by plane."""
        return [self.replica((region, plane)) for plane in range(self._routes.planes.count(scope))]

    def taker(self, scope: Scope, region: int, plane: int) -> str:
        """Who takes what goes to the next region in a plane: its replica there, or, where that is not free, another
        one, which passes it on; if none is free, itself after all, unless it cannot hear us."""
        peer = self.replica((region, plane))
        if not self.load(peer).is_free:
            up = [each for each in self.replicas(scope, region) if self.is_up(each)]
            others = [each for each in up if self.load(each).is_free] or ([] if peer in up else up)
            if others:
                return min(others, key=lambda each: self.load(each).rank)
        return peer

    # ------------------------------------------------------------------------------------- sealed content

    def carrier(self, scope: Scope, peer: str) -> tuple[str, int]:
        """Who takes content of a sealed scope to a replica of a next region, and the vector that goes along: that
        replica and none, but where our link to it is not free."""
        place = self._routes.planes.place_of(scope, peer) if self._routes.planes.detours(scope) else None
        if place is None or place[0] == self._routes.region:
            return peer, 0
        taker = self.taker(scope, *place)
        return taker, 0 if taker == peer else 1 << place[1]

    def owners(self, scope: Scope, vector: int) -> list[tuple[str, bool]]:
        """The replicas of our region for whom we got content of a sealed scope, and whether our link to each is
        free: if not, we do what it would do."""
        if not vector or not self._routes.planes.detours(scope):
            return []
        planes = planes_of(vector & (1 << self._routes.planes.count(scope)) - 1)
        found = [self.replica((self._routes.region, plane)) for plane in planes]
        return [(owner, self.load(owner).is_free) for owner in found if owner != self._routes.name]

    def replica(self, place: PlanePlace) -> str:
        """Who stands there."""
        return self._routes.planes.replica(place)

    def is_up(self, peer: str) -> bool:
        """Whether it can hear us."""
        return peer in self._routes.up


class _Copies:
    """Of one publication to whom it goes now: by peer, the planes that a replica is to serve."""

    def __init__(
        self,
        routing: PlaneRouting,
        scope: Scope,
        here: PlanePlace,
        wanted: _Wanted,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self._routing, self._scope, self._here, self._wanted = routing, scope, here, wanted
        self.found: dict[str, int] = {}
        self.left_out = left_out

    def serve(self, duties: int) -> None:
        """The planes that we have a duty for."""
        plane = self._here[1]
        if duties >> plane & 1:
            self.stand_in(plane)
        others = sum(1 << other for other in planes_of(duties) if other != plane and other in self._wanted)
        for copy in dynamic(self._here, (), others, self._load):
            if self._load(copy.to).is_free:
                self._give(self._replica(copy.to), copy.vector | 1 << copy.to[1])
            else:
                for other in planes_of(copy.vector | 1 << copy.to[1]):
                    self.stand_in(other)

    def stand_in(self, plane: int) -> None:
        """What the replica of that plane in our region does: to the gateways that hang on it, and along the plane."""
        for region, members in self._wanted.get(plane, {}).items():
            if region is not None:
                self.along(region, plane)
                continue
            for member in members:
                self._give(member, 0)

    def along(self, region: int, plane: int) -> None:
        """To the next region in a plane."""
        self._give(self._routing.taker(self._scope, region, plane), 1 << plane)

    def _give(self, peer: str, duties: int) -> None:
        if self._routing.is_up(peer):
            self.found[peer] = self.found.get(peer, 0) | duties

    def _replica(self, place: PlanePlace) -> str:
        return self._routing.replica(place)

    def _load(self, place: PlanePlace) -> LinkLoad:
        return self._routing.load(self._replica(place))
