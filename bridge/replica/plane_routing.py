"""Plane routing at one replica: the destinations in a scope with planes, by the rules the simulator runs (C6 to C9).

The publisher's gateway gives each replica of its region a copy, as in any scope, so that its outbox keeps its promise;
from there on a publication stays in its plane. A replica has a *duty* for its own plane or, with a vector, for the
vector's planes and not its own: so no two replicas have a duty for a plane. A copy along a congested link takes a
detour: another replica of the next region gets the copy, with a vector, and passes the copy on to the replica of that
plane. For planes of a vector `topology.dynamic` says which neighbours get a copy and which of them take over for
congested links. If a link is still not free, we act in the place of its replica: gateways of that plane have links
with us too, and so has every replica of the next region (cross links). So a stopped, slow or absent replica delays
only wires on their way to that replica, and these go again when its link has stood still for `STILL_S`.

Nothing goes back: the region before ours on the way from the publisher, whose name is signed, gets no copy from us,
whichever replica passed it to us in whichever plane. So a detour ends in the next region, and a publication enters
each region once in each plane. Each replica does its duty once for each plane and publication. Repetitions are known
by their sequence as ever. Not here: loads themselves (the shell's, event `Loads`), the form of wires.
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
"""Publications whose served planes are kept."""
STILL_S = 0.25
"""Seconds without acknowledgement after which a link with waiting wires stands still."""
PublicationName: TypeAlias = tuple[bytes, int]
"""Publisher and sequence."""


@dataclass(slots=True)
class _Link:
    load: LinkLoad = IDLE
    still_since: float = inf
    stands_still: bool = False


@dataclass(slots=True)
class _Served:
    """The planes of a publication we served; by peer, the planes for which it answers."""

    planes: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    uninterested: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Round:
    """The last result for a publication: by peer its planes, and its ways.

    `left_out`: ways on which no member wants the shown attributes.
    """

    name: PublicationName
    vectors: dict[str, int] = field(default_factory=dict)
    ways: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()


_Wanted: TypeAlias = dict[int, dict[int | None, list[str]]]
"""By plane the next regions, None: ours, behind which gateways of that plane want the scope."""


class PlaneRouting:
    """A replica's plane routing. `wanting(scope, now)`: members wanting a scope."""

    def __init__(self, routes: Routes, wanting: Callable[[Scope, float], Iterable[str]]) -> None:
        self._routes, self._wanting = routes, wanting
        self._links: dict[str, _Link] = {}
        self._served: FairTable[PublicationName, _Served] = FairTable(SERVED_MAX)
        self._round = _Round((b"", 0))
        self._takers: dict[str, str] = {}  # by replica of a next region, the last one that took its copies

    # ------------------------------------------------------------------------------------------------- loads

    def loaded(self, loads: Iterable[PeerLoad], now: float) -> list[str]:
        """Takes the shell's loads of our links, every `LOADS_EVERY_S`. Returns peers whose link stands still from now
        on.
        """
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

    def adopt_overlay(self) -> None:
        """Takes another version of the overlay, and forgets former links."""
        members = self._routes.overlay.members
        self._links = {peer: link for peer, link in self._links.items() if peer in members}
        self._takers.clear()

    def link_load(self, peer: str) -> LinkLoad:
        """Returns the load of our link to a peer: a link that stands still, or is down, is never free."""
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
        """Returns the receivers of a publication now; None: the scope is not routed by planes, here and now.

        Asked for every copy: planes served before are left out. `uninterested`: members that want the scope, but
        nothing that this publication shows.
        """
        planes, scope = self._routes.planes, admitted.scope
        here = planes.place_of(scope, self._routes.name) if planes.is_open(scope) else None
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

    def more(self, name: PublicationName, admitted: Admitted, now: float) -> list[str]:
        """Returns the receivers of our own plane for a publication we served, by all that is wanted now."""
        planes, scope, served = self._routes.planes, admitted.scope, self._served.get(name)
        here = planes.place_of(scope, self._routes.name) if planes.is_open(scope) else None
        if here is None or served is None or not served.planes >> here[1] & 1:
            return []
        copies = self._copies(scope, here, served, admitted, now)
        copies.stand_in(here[1])
        return self._sends(name, served, scope, copies)

    def has_served(self, name: PublicationName) -> bool:
        """Returns True if a publication was passed on by planes from here, as far as that is remembered."""
        return self._served.get(name) is not None

    def other_receivers(self, name: PublicationName, admitted: Admitted, peer: str, now: float) -> list[str]:
        """Returns other receivers for a publication sent to a peer whose link stands still."""
        planes, scope, served = self._routes.planes, admitted.scope, self._served.get(name)
        here = planes.place_of(scope, self._routes.name) if planes.is_open(scope) else None
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
        """Returns the vector for the peer's copy, by the last result of `peers` or `other_receivers`."""
        return self._round.vectors.get(peer, 0) if self._round.name == name else 0

    def ways(self, name: PublicationName) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
        """Returns the ways of each peer's copy, and unwanted ways, by the last result of `peers` or `other_receivers`.

        A way is named by the gateway, or by the replica of its plane, at its end.
        """
        return (self._round.ways, self._round.left_out) if self._round.name == name else ({}, frozenset())

    def planes_of_copy(self, admitted: Admitted, vector: int) -> list[tuple[int, str]]:
        """Returns the planes a copy from the region before is for, each with its replica there."""
        planes, scope, home = self._routes.planes, admitted.scope, admitted.publisher.region
        here = planes.place_of(scope, self._routes.name) if planes.is_open(scope) else None
        before = self._routes.topology.last_before(home, self._routes.region, admitted.tree)
        if here is None or before is None:
            return []
        named = planes_of(vector or 1 << here[1])
        return [(plane, self.replica((before, plane))) for plane in named if plane < planes.plane_count(scope)]

    def own_ways(self, admitted: Admitted, named: Iterable[int], now: float) -> list[str]:
        """Returns the ways going on from here in these planes."""
        wanted = self._wanted(admitted, now)
        return list(self._ways({plane: wanted.get(plane, {}) for plane in named}))

    def _wanted(self, admitted: Admitted, now: float, but: frozenset[str] = frozenset()) -> _Wanted:
        """Returns the members wanting the scope, except `but`, and not in the direction from which the copy came."""
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
        """Returns the replicas of a region, by plane."""
        return [self.replica((region, plane)) for plane in range(self._routes.planes.plane_count(scope))]

    def taker(self, scope: Scope, region: int, plane: int) -> str:
        """Returns the replica of the next region taking copies of a plane.

        It is the plane's replica, or, if its link is not free, another one, which passes copies on; if none is free,
        the plane's replica after all, unless it is not connected. Another one goes on as long as its link is free:
        each
        change would leave a gap between the publications of which the former and the new one can speak.
        """
        peer = self.replica((region, plane))
        if not self.link_load(peer).is_free:
            up = [each for each in self.replicas(scope, region) if self.is_up(each)]
            others = [each for each in up if self.link_load(each).is_free] or ([] if peer in up else up)
            former = self._takers.get(peer)
            if others and former not in others:
                former = self._takers[peer] = min(others, key=lambda each: self.link_load(each).rank)
            return former if former is not None and others else peer
        return peer

    # ------------------------------------------------------------------------------------- sealed content

    def carrier(self, scope: Scope, peer: str) -> tuple[str, int]:
        """Returns the replica taking sealed content to `peer`, a replica of a next region, and the vector for it.

        It is `peer` without vector, unless our link to it is not free.
        """
        place = self._routes.planes.place_of(scope, peer) if self._routes.planes.detours(scope) else None
        if place is None or place[0] == self._routes.region:
            return peer, 0
        taker = self.taker(scope, *place)
        return taker, 0 if taker == peer else 1 << place[1]

    def owners(self, scope: Scope, vector: int) -> list[tuple[str, bool]]:
        """Returns the replicas of our region for which we got sealed content, and for each True if our link to it is
        free.

        If the link is not free, we act in its place.
        """
        if not vector or not self._routes.planes.detours(scope):
            return []
        planes = planes_of(vector & (1 << self._routes.planes.plane_count(scope)) - 1)
        found = [self.replica((self._routes.region, plane)) for plane in planes]
        return [(owner, self.link_load(owner).is_free) for owner in found if owner != self._routes.name]

    def replica(self, place: PlanePlace) -> str:
        """Returns the replica at a place."""
        return self._routes.planes.replica(place)

    def is_up(self, peer: str) -> bool:
        """Returns True if the peer is connected."""
        return peer in self._routes.up


class _Copies:
    """Copies of a publication to send now: by peer, the planes a replica is to serve."""

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
        """Adds the copies for the planes of our duty."""
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
        """Adds the copies of our region's replica of that plane: to its gateways, and along the plane."""
        for region, members in self._wanted.get(plane, {}).items():
            if region is not None:
                self.along(region, plane)
                continue
            for member in members:
                self._give(member, 0)

    def along(self, region: int, plane: int) -> None:
        """Adds the copy to the next region in a plane."""
        self._give(self._routing.taker(self._scope, region, plane), 1 << plane)

    def _give(self, peer: str, duties: int) -> None:
        if self._routing.is_up(peer):
            self.found[peer] = self.found.get(peer, 0) | duties

    def _replica(self, place: PlanePlace) -> str:
        return self._routing.replica(place)

    def _load(self, place: PlanePlace) -> LinkLoad:
        return self._routing.link_load(self._replica(place))
