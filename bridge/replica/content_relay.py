"""Relay of content at one replica: pieces for each neighbour, requests, and answers (docs/protocol.md §4).

A header is passed on at once, to everybody. Content goes plane by plane: a neighbour that has its pieces from us gets
them with the header if they are here; if not, an announcement after `pulling.PULL_S`, and the pieces when they come.
Meanwhile we ask the neighbours that sent us the header. Recent publications stay here (`RECENT_S`, `RECENT_BYTES`): to
answer requests, and for a replica whose link was down. Hence bad replicas in different planes stop nothing: an honest
one always heard of the header from an honest one, which asks in turn, as far as the publisher.

Not here: the check of headers (`forwarder`, `admission`), shares, the choice of pieces for a neighbour (`passing`),
the arithmetic (`wire.pieces`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bridge.contract import Count, Deferrals, Effect, FairBytes, Received, Send, UserProperties, Wire, earliest
from bridge.document import Scope
from bridge.replica.passing import Passing, PassingOn
from bridge.replica.plane_routing import PlaneRouting
from bridge.topology import Routes
from bridge.wire import CHAIN_MAX, PULL_S, Admission, Admitted, Answers, Name, PullRequest, Pulls, RoutingTable
from bridge.wire import pieces as content
from keys.envelope import MessageHeader, Mode
from keys.errors import NotAuthorised
from keys.identity import Certificate

RECENT_S = 30.0
RECENT_BYTES = 64 << 20  # of content that passed lately; a flooder's own goes first
RECENT_OVERHEAD_BYTES = 1024  # of tables beside content and header: bounds the number too
IN_FLIGHT_S = 2.0  # wires sent so shortly before a link went down may not have arrived
UNNOTICED_S = 10.0  # a neighbour that lost its session may have been away for so long, and nobody noted since when
COMEBACKS_BURST, COMEBACKS_EVERY_S = 8, 10.0  # of one link, after which missed publications are sent again


class Carrying:
    """The content that one replica carries.

    `planes`: which links are free. `give(peer, wire, admitted)`: sends with the key the peer may lack; `keep(wire,
    admitted, now)`: retains; `wanting(publisher, scope, tree, now)`: peers a publication goes on to.
    """

    def __init__(
        self,
        routes: Routes,
        admission: Admission,
        routing: RoutingTable,
        planes: PlaneRouting,
        give: Callable[[str, Wire, Admitted], list[Effect]],
        keep: Callable[[Wire, Admitted, float], None],
        wanting: Callable[[Certificate, Scope, int, float], Iterable[str]],
    ) -> None:
        self._routes, self._admission, self._routing = routes, admission, routing
        self._keep, self._wanting = keep, wanting
        self._passing = PassingOn(routes, planes, give)
        self._recent: FairBytes[Name, Passing] = FairBytes(RECENT_BYTES, RECENT_OVERHEAD_BYTES)
        self.passing = self._recent.get
        self._pulls = Pulls()
        self._answers = Answers()
        self._down: dict[str, float] = {}  # since when a replica's link is down
        self._comebacks: Deferrals[str] = Deferrals(COMEBACKS_BURST, COMEBACKS_EVERY_S)

    # ------------------------------------------------------------------------------------------- arriving

    def pass_first_copy(
        self,
        sender: str,
        topic: str,
        signed: UserProperties,
        admitted: Admitted,
        pieces: content.Pieces,
        peers: Iterable[str],
        now: float,
        whole: bool = False,
        vector: int = 0,
    ) -> list[Effect]:
        """Passes on a publication whose header is new, with its content as far as present.

        `whole`: nobody else gives these peers the content. `vector`: planes whose pieces we got, too.
        """
        passing = Passing(topic, signed, admitted, sender, now, dict(pieces), tuple(peers), [sender])
        self._expire(now)
        size = sum(map(len, passing.pieces.values())) + passing.said_bytes
        self._recent.put(passing.name, passing.header.publisher, passing, size)
        effects: list[Effect] = []
        if content.rides_along(passing.header, passing.pieces) or (whole and passing.pieces):  # the usual case
            wire = content.wire(topic, passing.header, signed, passing.pieces)
            for peer in passing.peers:
                effects += self._passing.give(peer, wire, admitted)
        else:
            for peer in passing.peers:
                parts = self._passing.pieces_at(passing.header, peer)
                held = self._have(passing, parts)
                if held is None:
                    passing.owed[peer] = parts
                else:
                    effects += self._passing.carry(peer, passing, held)
        if passing.header.retain:
            self._retain(passing, now)
        if vector:
            effects += self._passing.for_others(passing, vector)
        if not passing.owed and self._pulls.get(passing.name) is None and (passing.pieces or not passing.header.retain):
            return effects  # the usual case
        return effects + self._settle_requests(passing, now)

    def is_whole_copy(self, admitted: Admitted, payload: bytes) -> bool:
        """Returns True for the content of a publication that passed lately, whole and in a single piece."""
        header = admitted.header
        passing = self._recent.get((header.publisher, header.sequence))
        if passing is None or passing.header is not header or len(header.digests) != 1:
            return False
        return header.mode is not Mode.BLOCKS and passing.pieces.get(0) == payload

    def over(
        self,
        sender: str,
        topic: str,
        signed: UserProperties,
        admitted: Admitted,
        peers: Iterable[str],
        now: float,
    ) -> list[Effect]:
        """Passes on the header alone of a publication that expired on its way.

        The publication is recalled, so that a sender of a copy with other content is charged.
        """
        passing = Passing(topic, signed, admitted, sender, now, {}, tuple(peers), [sender])
        self._expire(now)
        self._recent.put(passing.name, passing.header.publisher, passing, passing.said_bytes)
        return [sent for peer in passing.peers for sent in self._passing.on(peer, passing, {})]

    def recalls(self, name: Name) -> bool:
        """Returns True if a copy may still bring something: the publication passed lately, or a neighbour asks for
        it.
        """
        return self._recent.get(name) is not None or self._pulls.get(name) is not None

    def passes(self, header: MessageHeader) -> bool:
        """Returns True if this very sealing passed lately."""
        passing = self._recent.get((header.publisher, header.sequence))
        return passing is not None and passing.header == header

    def take_later_copy(
        self,
        sender: str,
        topic: str,
        signed: UserProperties,
        admitted: Admitted,
        pieces: content.Pieces,
        now: float,
        vector: int = 0,
    ) -> list[Effect] | None:
        """Takes a copy whose header was heard before.

        Returns None if its content brings nothing new to us, or to the planes in the vector.
        """
        name = (admitted.header.publisher, admitted.header.sequence)
        passing = self._recent.get(name)
        if passing is not None and len(passing.pieces) == len(passing.header.digests):
            same = vector and passing.header == admitted.header
            return (
                self._passing.for_others(passing, vector) or None if same else None
            )  # None: a further copy of whole content
        pull = self._pulls.get(name)
        if passing is None:  # passed so long ago that it is forgotten; a neighbour may have asked again
            return None if pull is None else self.pass_first_copy(sender, topic, signed, admitted, pieces, (), now)
        if passing.header != admitted.header:  # another sealing, be it in the same millisecond: pieces of two never mix
            return None
        if sender not in passing.announcers:
            passing.announcers.append(sender)
        fresh = {index: piece for index, piece in pieces.items() if index not in passing.pieces}
        if not fresh:
            return self._passing.for_others(passing, vector) or None
        if not passing.pieces and content.rides_along(passing.header, fresh):
            passing.owed = dict.fromkeys(passing.peers, (0,))
        passing.pieces.update(fresh)
        self._recent.grow(name, sum(map(len, fresh.values())))
        self._pulls.content_came(pull, sender, now - passing.since)
        effects: list[Effect] = [Count("repairs")] if pull is not None and pull.asked else []
        for peer, parts in list(passing.owed.items()):
            held = self._have(passing, parts)
            if held is not None:
                del passing.owed[peer]
                effects += self._passing.carry(peer, passing, held)
        effects += self._passing.for_others(passing, vector)
        self._retain(passing, now)
        return [*effects, *self._settle_requests(passing, now), Count("content_after")]

    def round(self, passing: Passing, peer: str) -> list[Effect]:
        """Sends a publication over another replica too, since its peer's link stands still."""
        pieces = self._have(passing, self._passing.pieces_at(passing.header, peer))
        return self._passing.round(peer, passing, pieces or {})

    def lately(self, peer: str, now: float) -> list[Passing]:
        """Returns the publications sent to a peer so shortly ago that they may not have arrived."""
        self._expire(now)
        late = now - IN_FLIGHT_S
        return [passing for _, passing in self._recent.items() if passing.since >= late and peer in passing.peers]

    def also(self, passing: Passing, peers: Iterable[str]) -> list[Effect]:
        """Sends a publication that was passed on to these peers, too."""
        others = [peer for peer in peers if peer in self._routes.up] if passing.pieces else []
        passing.peers = tuple(dict.fromkeys((*passing.peers, *others)))
        return [sent for peer in others for sent in self._passing.on(peer, passing, passing.pieces)]

    def more(self, name: Name, peers: Iterable[str]) -> list[Effect]:
        """Sends a publication, by its name, to these peers too; nothing, if it is forgotten."""
        passing = self._recent.get(name)
        return [] if passing is None else self.also(passing, peers)

    def tell_header(self, peer: str, name: Name) -> list[Effect]:
        """Sends a header to the peer once more, for the properties going beside it now."""
        passing = self._recent.get(name)
        return [] if passing is None or peer not in self._routes.up else self._passing.on(peer, passing, {})

    def _retain(self, passing: Passing, now: float) -> None:
        if passing.header.retain and 0 in passing.pieces:
            whole = content.wire(passing.topic, passing.header, passing.signed, passing.pieces)
            self._keep(whole, passing.admitted, now)

    def _expire(self, now: float) -> None:
        since = now - RECENT_S
        while (oldest := next(iter(self._recent.items()), None)) is not None and oldest[1].since < since:
            self._recent.pop(oldest[0])

    # ---------------------------------------------------------------------------------- asking for content

    def _have(self, passing: Passing, parts: tuple[int, ...]) -> dict[int, bytes] | None:
        """Returns all of these pieces, remade of others where they suffice; None if one cannot be had.

        Each is remade once: remaking costs more than asking.
        """
        for index in parts:
            if index in passing.pieces:
                continue
            if passing.unmakeable or not content.suffices(passing.header, passing.pieces):
                return None
            piece = content.remade(passing.header, passing.pieces, index)
            if piece is None:
                passing.unmakeable = True
                return None
            passing.pieces[index] = piece
            self._recent.grow(passing.name, len(piece))
        return {index: passing.pieces[index] for index in parts}

    def _settle_requests(self, passing: Passing, now: float) -> list[Effect]:
        """Answers requests for pieces that are here now; asks for missing pieces, or stops asking."""
        effects: list[Effect] = []
        pull = self._pulls.get(passing.name)
        if pull is not None:
            for asker, parts in list(pull.askers.items()):
                answer = self._answer_peer(asker, passing, parts, now)
                if answer is not None:
                    del pull.askers[asker]
                    effects += answer
        if not self._missing(passing):
            if pull is not None:
                self._pulls.end_pull(passing.name)
        elif pull is None:
            header = passing.header
            home, tree = passing.admitted.publisher.region, passing.admitted.tree
            regions = self._routes.topology.regions_between(home, self._routes.region, tree)
            self._pulls.begin_pull(passing.name, header.time_ms, header.publisher, now, PULL_S * regions)
        return effects

    def _missing(self, passing: Passing) -> tuple[int, ...]:
        """Returns the pieces we lack: to pass on, for askers, and to retain."""
        wanted = {index for parts in passing.owed.values() for index in parts}
        pull = self._pulls.get(passing.name)
        if pull is not None:
            wanted.update(index for parts in pull.askers.values() for index in _fitting(passing, parts))
        if passing.header.retain:
            wanted.add(0)
        return tuple(sorted(wanted - passing.pieces.keys()))

    def tick(self, now: float) -> list[Effect]:
        """Asks the next source for missing content; gives up content nobody has."""
        asking, gone = self._pulls.due_pulls(now)
        effects: list[Effect] = [Count("content_given_up", len(gone))] if gone else []
        for peer in self._comebacks.due_keys(now):
            effects += self.link_up(peer, now) if peer in self._routes.up else []
        for pull in asking:
            passing = self._recent.get(pull.name)
            publisher = self._routes.overlay.by_party.get(pull.name[0])
            if publisher is None or (passing is None and not pull.askers):
                self._pulls.end_pull(pull.name)
                continue
            parts = self._missing(passing) if passing is not None else ()
            if passing is not None and parts:  # of this sealing, whichever time an asker named
                pull.time_ms = passing.header.time_ms
            if passing is not None and not passing.announced:
                passing.announced = True
                effects += [sent for peer in passing.owed for sent in self._passing.on(peer, passing, {})]
            announcers = passing.announcers if passing is not None else ()
            trees = self._may_name() if passing is None else [passing.admitted.tree]
            sends = self._pulls.ask_next(pull, self._sources(publisher, announcers, trees), parts)
            effects += [*sends, Count("pulls")] if sends else []
        return effects

    def _may_name(self) -> list[int]:
        """Returns the trees along which an unknown publication may have come; others know these by now."""
        return [tree.number for tree in self._routes.overlay.trees.sealed_for]

    def _sources(self, publisher: Certificate, announcers: Iterable[str], trees: Iterable[int]) -> list[str]:
        """Returns the sources of a publication: its announcers, then the other members of the region before ours.

        The region before is taken for each tree along which it may have come.
        """
        regions = [self._routes.topology.last_before(publisher.region, self._routes.region, tree) for tree in trees]
        before = [
            peer
            for region in dict.fromkeys(regions)
            for peer in ([publisher.name] if region is None else self._routes.members_up(region))
        ]
        return [peer for peer in dict.fromkeys((*announcers, *before)) if peer in self._routes.up]

    @property
    def next_deadline(self) -> float | None:
        comebacks_at = self._comebacks.next_deadline
        return earliest(self._pulls.next_deadline, comebacks_at) if self._pulls.wakeups else comebacks_at

    # -------------------------------------------------------------------------------------------- answering

    def answer_request(self, event: Received, now: float) -> list[Effect]:
        """Answers a neighbour's request. Raises BadFrame, NotAuthorised."""
        peer, request = event.peer, PullRequest.decode(event.wire.payload)
        if not self._answers.may_ask(peer, request.publisher, now):
            return [Count("pulls_refused")]
        self._check_way(peer, self._admission.publisher(request.publisher, now))
        passing = self._recent.get(request.name)
        if passing is not None and passing.header.time_ms >= request.time_ms:
            if not content.has_parts(passing.header, request.parts, request.time_ms):
                return [Count("pulls_refused")]
            self._check_right(peer, passing, now)
            answer = self._answer_peer(peer, passing, request.parts, now)
            if answer is not None:
                return [*self._chain(peer, passing, request.above, now), *answer]
        elif not self._answers.may_ask_unknown(peer, request.publisher, now):
            return [Count("pulls_refused")]
        wants = request.publisher + peer.encode()  # an asker for much evicts its own requests
        pull = self._pulls.begin_pull(request.name, request.time_ms, wants, now, 0.0)
        pull.askers[peer] = request.parts
        return [Count("pulls_passed_on")]

    def _chain(self, peer: str, passing: Passing, above: int, now: float) -> list[Effect]:
        """Returns the predecessors of a publication in its chain that are whole here, down to a number, the oldest
        first.

        So an asker for the last of a gap has all of the gap in a few requests.
        """
        found: list[Effect] = []
        stream, number = passing.admitted.scope.stream, passing.header.previous
        for _ in range(CHAIN_MAX - 1 if above else 0):
            before = self._recent.get((passing.header.publisher, number)) if number > above else None
            if before is None or before.admitted.scope.stream != stream or before.header.previous >= number:
                break
            if not self._answers.may_ask(peer, before.header.publisher, now):
                break
            found = [*(self._answer_peer(peer, before, (), now) or ()), *found]
            number = before.header.previous
        return found

    def _answer_peer(self, peer: str, passing: Passing, parts: tuple[int, ...], now: float) -> list[Effect] | None:
        """Returns the answer to an asker; None if we lack the content."""
        pieces = self._have(passing, content.enough(passing.header, _fitting(passing, parts) or passing.pieces))
        if pieces is None:
            return None
        try:
            self._check_right(peer, passing, now)
        except NotAuthorised:  # the asker asked before we knew the scope
            return [Count("pulls_refused")]
        if not self._leads_to(peer, passing):
            return [Count("pulls_refused")]
        given = self._answers.give(peer, passing.name, passing.header.time_ms, pieces, now)
        if given is None or peer not in self._routes.up:
            return [Count("pulls_refused")]
        wire = content.wire(passing.topic, passing.header, passing.signed, given)
        return [Send(peer, wire), Count("pulls_answered")]

    def _check_way(self, peer: str, publisher: Certificate) -> None:
        """Raises NotAuthorised for a replica that does not receive the publisher's publications from us."""
        if self._routes.is_replica(peer) and self._routes.region_of(peer) != self._routes.region:
            home, theirs = publisher.region, self._routes.region_of(peer)
            if not self._routes.topology.was_before(self._routes.region, home, theirs):
                raise NotAuthorised(f"{peer} is not behind us on the way from {publisher.name}")

    def _leads_to(self, peer: str, passing: Passing) -> bool:
        """Returns True if the way of this publication, in its tree, goes from our region to the replica's.

        An asker knows its number and not its tree, and would have to refuse a copy coming another way.
        """
        theirs = self._routes.region_of(peer) if self._routes.is_replica(peer) else self._routes.region
        if theirs == self._routes.region:
            return True
        home, tree = passing.admitted.publisher.region, passing.admitted.tree
        return self._routes.topology.last_before(home, theirs, tree) == self._routes.region

    def _check_right(self, peer: str, passing: Passing, now: float) -> None:
        """Raises NotAuthorised unless a replica's region carries the scope, or a reader may read it now."""
        scope = passing.admitted.scope
        if self._routes.is_replica(peer):
            allowed = self._routes.topology.carries(self._routes.region_of(peer), scope)
        else:
            allowed = self._routing.may_read(peer, scope, now)
        if not allowed:
            raise NotAuthorised(f"{peer} may not have publications of {scope.filter}")

    # ---------------------------------------------------------------------------------------------- changes

    def link_down(self, peer: str, now: float) -> None:
        if self._routes.is_replica(peer):
            self._down.setdefault(peer, now)

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Sends a replica of the next region again the publications that passed while its link was down.

        If the link comes up too often, later, with all publications since the first time. The replica recognises
        copies.
        """
        is_near = self._routes.region_of(peer) == self._routes.region
        since = self._down.get(peer, now - UNNOTICED_S if is_near else None)
        if since is None or not self._comebacks.spend_one(peer, now):
            return []
        self._down.pop(peer, None)
        self._expire(now)
        if is_near:
            return self._for_neighbour(peer, since - IN_FLIGHT_S)
        effects: list[Effect] = []
        for _, passing in self._recent.items():
            admitted = passing.admitted
            if passing.since < since - IN_FLIGHT_S:
                continue
            if peer not in self._wanting(admitted.publisher, admitted.scope, admitted.tree, now):
                continue
            inline = content.rides_along(passing.header, passing.pieces)
            pieces = passing.pieces if inline else self._have(passing, self._passing.pieces_at(passing.header, peer))
            effects += self._passing.on(peer, passing, pieces or {})
        return effects

    def _for_neighbour(self, peer: str, since: float) -> list[Effect]:
        """Sends a replica of our region again publications that passed by planes: it may have crashed with copies
        nobody else was to pass on. The next replica after it does so.
        """
        members = self._routes.overlay.views[self._routes.region].members
        after = members.index(peer) + 1 if peer in members else 0
        others = [each for each in (*members[after:], *members) if each in self._routes.up or each == self._routes.name]
        if others[:1] != [self._routes.name]:
            return []
        found = [passing for _, passing in self._recent.items() if passing.since >= since and passing.pieces]
        return [
            sent
            for passing in found
            if self._routes.planes.is_open(passing.admitted.scope) and not passing.header.retain
            for sent in self._passing.on(peer, passing, passing.pieces)
        ]

    def passed(self, scope: Scope, since_ms: int) -> list[Passing]:
        """Returns publications of a scope that passed lately, sealed at that time or after, except retained ones."""
        return [
            passing
            for _, passing in self._recent.items()
            if passing.admitted.scope.filter == scope.filter
            and passing.header.time_ms >= since_ms
            and not passing.header.retain
        ]

    def adopt_replicas(self, added: Iterable[str], now: float) -> None:
        """Takes another version of the overlay, which the other parts know already.

        Links of `added` replicas are still to come: publications passing until then are sent when they do.
        """
        members = self._routes.overlay.members
        for peer in added:
            self.link_down(peer, now)
        self._answers.forget_all_but(members)
        for _, passing in self._recent.items():
            passing.peers = tuple(peer for peer in passing.peers if peer in members)
            passing.owed = {peer: parts for peer, parts in passing.owed.items() if peer in members}
        self._pulls.forget_all_but(members)
        self._down = {peer: since for peer, since in self._down.items() if peer in members}
        self._comebacks.forget_unless(members.__contains__)


def _fitting(passing: Passing, parts: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the pieces asked for; none, hence all, if the asker meant another sealing, or named none."""
    return parts if parts and parts[-1] < len(passing.header.digests) else ()
