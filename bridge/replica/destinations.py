"""Destinations of a publication from a replica, and the properties beside it: every way to a member wanting it.

By regions it goes to every replica of a next region behind a member wants its scope, and to such gateways here; by
planes as `plane_routing` says. In a scope showing attributes, members whose covers do not match are left out, and the
next publication on that way says so (`filtering`). Not here: statements (`wire.statements`), sending (`forwarder`,
`content_relay`).

Replicas before ours that hang with their links up: nobody but a receiver of others' copies can notice that (C10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from bridge.contract import FairTable, PeerLoad, UserProperties
from bridge.document import Overlay, Scope
from bridge.replica.filtering import Filtering
from bridge.replica.plane_routing import PlaneRouting, PublicationName
from bridge.topology import Routes
from bridge.wire import PROPERTY_ROUTE, PROPERTY_SKIP, Admitted, RoutingTable, ShownList, read_skip, read_vector
from keys.envelope import MessageHeader
from keys.identity import Certificate

SILENT_S = 0.5
"""Seconds by which a replica may be behind the one that serves its plane, as at readers (`reader.skipped`)."""
WORDS_MAX = 1_024
"""Words that wait for one replica. A publisher with many loses its own first: its gaps are asked for, as others'."""

W = TypeVar("W")


@dataclass(slots=True)
class _Waiting(Generic[W]):
    since: float
    words: FairTable[int, W] = field(default_factory=lambda: FairTable(WORDS_MAX))
    count: int = 0


class SilentHosts(Generic[W]):
    """The replicas before ours for which others speak, each with the words that wait."""

    def __init__(self) -> None:
        self.waiting: dict[str, _Waiting[W]] = {}
        """By name of the replica; empty as a rule."""

    def __len__(self) -> int:
        """Returns the number of words that wait."""
        return sum(len(waiting.words) for waiting in self.waiting.values())

    def brought(self, host: str) -> None:
        """Notes that a replica brought a publication: words of others for its plane count no more."""
        self.waiting.pop(host, None)

    def is_silent(self, host: str, now: float) -> bool:
        """Returns True if others spoke for a replica for `SILENT_S`, and it brought nothing meanwhile."""
        waiting = self.waiting.get(host)
        return waiting is not None and now >= waiting.since + SILENT_S

    def said(self, host: str, publisher: bytes, word: W, now: float) -> None:
        """Keeps the word of another replica serving the host's plane, about a gap of a publisher."""
        waiting = self.waiting.get(host)
        if waiting is None:
            waiting = self.waiting[host] = _Waiting(now)
        waiting.count += 1
        waiting.words.put(waiting.count, publisher, word)

    def take_due_words(self, now: float) -> list[W]:
        """Takes the words for replicas that are silent now, in the order in which they came."""
        found: list[W] = []
        for host, waiting in self.waiting.items():
            if len(waiting.words) and self.is_silent(host, now):
                found += waiting.words.values()
                waiting.words = FairTable(WORDS_MAX)
        return found

    def forget_words(self) -> None:
        """Forgets all words: places and planes may differ in another version of the overlay."""
        self.waiting.clear()

    @property
    def next_deadline(self) -> float | None:
        """The time at which the next replica is silent; None if no word waits."""
        return min((each.since + SILENT_S for each in self.waiting.values() if len(each.words)), default=None)


_Ways: TypeAlias = list[tuple[str, Sequence[str]]]
"""Members, each with the peers on its way."""


class _KnownWays(NamedTuple):
    """The ways that were found at `from_s` and stay until `until_s`, if no link and no statement changes; all peers on
    them. Nobody changes the lists.
    """

    from_s: float
    until_s: float
    ways: _Ways
    peers: list[str]


@dataclass(frozen=True, slots=True)
class _Word:
    """The word of a replica speaking for another one: all after `low` was left out before this publication."""

    admitted: Admitted
    low: int
    plane: int


class Destinations:
    """A replica's choice of destinations."""

    def __init__(self, routes: Routes, routing: RoutingTable) -> None:
        self._routes, self._routing = routes, routing
        self._filtering = Filtering()
        self.silent: SilentHosts[_Word] = SilentHosts()
        """The replicas before ours for which others speak."""
        self.planes = PlaneRouting(routes, routing.wanting)
        self._ways_known: dict[tuple[str, int, str, int], _KnownWays] = {}
        """By publisher's name and region, scope and tree. Certified publishers only, so bounded by members x scopes."""

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets former members."""
        self.forget_ways()
        self.planes.adopt_overlay()
        self.silent.forget_words()
        self._filtering.forget_all_but(overlay.members, overlay.by_party)

    def forget_ways(self) -> None:
        """Forgets the ways: a link came or went, or a member stated something."""
        self._ways_known.clear()

    def loaded(self, loads: Iterable[PeerLoad], now: float) -> list[str]:
        """Takes the loads of our links. Returns peers whose link stands still from now on."""
        return self.planes.loaded(loads, now)

    # --------------------------------------------------------------------------------------- who wants what

    def wanting(self, publisher: Certificate, scope: Scope, tree: int, now: float) -> list[str]:
        """Returns peers to send to: replicas of next regions, and gateways here, to which a statement leads."""
        return list(self._known_ways(publisher, scope, tree, now).peers)

    def _known_ways(self, publisher: Certificate, scope: Scope, tree: int, now: float) -> _KnownWays:
        asked = publisher.name, publisher.region, scope.filter, tree
        known = self._ways_known.get(asked)
        if known is None or not known.from_s <= now < known.until_s:
            ways, until_s = self._ways(publisher, scope, tree, now), self._routing.stays_until(scope, now)
            known = self._ways_known[asked] = _KnownWays(now, until_s, ways, _peers_on(ways))
        return known

    def _ways(self, publisher: Certificate, scope: Scope, tree: int, now: float) -> _Ways:
        """Returns the members wanting a scope, each with the peers on its way."""
        arrival = self._routes.towards(publisher.region, tree)
        ways: _Ways = []
        for member in self._routing.wanting(scope, now):
            direction = self._routes.towards(self._routes.region_of(member), tree)
            if direction is None:
                if member != publisher.name and member in self._routes.up:
                    ways.append((member, (member,)))
            elif direction != arrival and self._routes.topology.carries(direction, scope):
                ways.append((member, self._routes.members_up(direction)))
        if scope.history is None:
            return ways
        for region in scope.history.regions or self._routes.overlay.regions_of(scope):
            direction = self._routes.towards(region, tree)
            if direction not in (None, arrival) and self._routes.topology.carries(direction, scope):
                ways.append((f"region {region}", self._routes.members_up(direction)))
        return ways

    # ------------------------------------------------------------------------------------- one publication

    def by_regions(self, admitted: Admitted, shown: ShownList | None, now: float) -> list[str]:
        """Returns the receivers of a publication; notes members that want its scope, but none of its shown attributes.

        A retained publication goes to all members wanting its scope, so that none keeps a former value.
        """
        header, scope = admitted.header, admitted.scope
        known = self._known_ways(admitted.publisher, scope, admitted.tree, now)
        everybody = peers = known.peers
        if not scope.shown:
            return everybody
        if shown is not None and not header.retain:
            uninterested = self._routing.left_out(scope, shown)
            peers = _peers_on([way for way in known.ways if way[0] not in uninterested])
        left_out = [peer for peer in everybody if peer not in peers]
        self._filtering.passes(scope.filter, header, {peer: (peer,) for peer in peers}, left_out)
        return peers

    def by_planes(self, admitted: Admitted, shown: ShownList | None, vector: int, now: float) -> list[str] | None:
        """Returns the receivers of a copy by planes; None if the publication does not go by planes, here and now."""
        header, scope = admitted.header, admitted.scope
        if not scope.by_planes or header.retain:
            return None
        uninterested = self._routing.left_out(scope, shown) if shown is not None else frozenset()
        peers = self.planes.peers(name_of(header), admitted, vector, now, uninterested)
        if peers is not None:
            self._note_left_out(admitted)
        return peers

    def other_receivers(self, admitted: Admitted, peer: str, now: float) -> list[str]:
        """Returns other receivers for a publication sent to a peer whose link stands still."""
        others = self.planes.other_receivers(name_of(admitted.header), admitted, peer, now)
        self._note_left_out(admitted)
        return others

    def more(self, admitted: Admitted, now: float) -> list[str]:
        """Returns the receivers for a publication we passed on, by all wanted now; by planes, of our own plane."""
        if not admitted.scope.by_planes:
            return self._known_ways(admitted.publisher, admitted.scope, admitted.tree, now).peers
        peers = self.planes.more(name_of(admitted.header), admitted, now)
        self._note_left_out(admitted)
        return peers

    def _note_left_out(self, admitted: Admitted) -> None:
        if admitted.scope.shown:
            given, left_out = self.planes.ways(name_of(admitted.header))
            self._filtering.passes(admitted.scope.filter, admitted.header, given, left_out)

    # ----------------------------------------------------------------------------------- properties beside a copy

    def beside(self, peer: str, admitted: Admitted) -> UserProperties:
        """Returns the properties of the copy for a peer: the gap left out before it, and its planes."""
        found: UserProperties = ()
        if (low := self._filtering.claim(peer, admitted.scope.filter, admitted.header)) is not None:
            found += ((PROPERTY_SKIP, str(low)),)
        if vector := self.planes.vector(name_of(admitted.header), peer):
            found += ((PROPERTY_ROUTE, str(vector)),)
        return found

    def take_gap_word(
        self, peer: str, admitted: Admitted, properties: Mapping[str, str], now: float
    ) -> list[tuple[str, PublicationName]]:
        """Takes the word on a gap of a replica of the region before.

        Returns peers that may learn more now, each with the publication to say it beside. Raises BadFrame.
        """
        self.silent.brought(peer)
        header, scope, topology = admitted.header, admitted.scope, self._routes.topology
        low = read_skip(properties, header)
        before = topology.last_before(admitted.publisher.region, self._routes.region, admitted.tree)
        if low is None or before is None or peer not in self._routes.overlay.views[before].members:
            return []
        if scope.by_planes:
            named = self.planes.planes_of_copy(admitted, read_vector(properties))
            return self._heard_in_planes(peer, admitted, low, named, now)
        threshold = self._routes.overlay.views[before].threshold
        return _named(header, self._filtering.take_gap_word(scope.filter, header, peer, low, threshold))

    def _heard_in_planes(
        self, peer: str, admitted: Admitted, low: int, named: Iterable[tuple[int, str]], now: float
    ) -> list[tuple[str, PublicationName]]:
        """Believes a sender in its own plane of the region before, and in planes whose replica is away or silent.

        So a bad replica deceives only gateways of its own plane, or of a plane whose replica does not work. The word on
        other planes waits until their replica was silent for long enough.
        """
        believed: list[int] = []
        for plane, host in named:
            if peer == host or not self.planes.is_up(host) or self.silent.is_silent(host, now):
                believed.append(plane)
            else:
                self.silent.said(host, admitted.header.publisher, _Word(admitted, low, plane), now)
        return self._believed(admitted, low, believed, now) if believed else []

    def _believed(
        self, admitted: Admitted, low: int, planes: Sequence[int], now: float
    ) -> list[tuple[str, PublicationName]]:
        header, ways = admitted.header, self.planes.own_ways(admitted, planes, now)
        is_passed = self.planes.has_served(name_of(header))
        return _named(header, self._filtering.believed(admitted.scope.filter, header, low, ways, is_passed))

    def tick(self, now: float) -> Iterator[tuple[str, PublicationName]]:
        """Believes words on planes whose replica was silent for long enough. Yields peers as `take_gap_word` returns
        them: each may be told before the next word counts.
        """
        for word in self.silent.take_due_words(now):
            yield from self._believed(word.admitted, word.low, [word.plane], now)


def _named(header: MessageHeader, told: Iterable[tuple[str, int]]) -> list[tuple[str, PublicationName]]:
    return [(other, (header.publisher, number)) for other, number in told]


def name_of(header: MessageHeader) -> PublicationName:
    """Returns the key under which a publication is kept."""
    return header.publisher, header.sequence


def _peers_on(ways: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    return list(dict.fromkeys([peer for _, peers in ways for peer in peers]))
