"""Relay of statements by a replica: to everybody, or, of scopes with planes, in the two steps of paper C (C5).

A gateway tells every replica of its region. The replica of its plane passes the statement to the same plane of each
next region (PRIMARY); the receiver there tells the next regions, and the others of its own region, which pass nothing
on (SECONDARY). So each replica hears a statement once, without an identification, and the step follows from the
sender. A replica without a link to the next replica of the plane tells all replicas of the next region instead.

A bad replica on the way could withhold a statement. So adjacent replicas, of a region or of a plane, compare *digests*
of their tables every `COMPARE_S`, and tell each other the differences: withholding only delays. Not here: the check of
a statement (`wire.statements`), its effects (`forwarder`).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from zlib import crc32

from bridge.contract import Allowance, Effect, Received, Send, Wire
from bridge.topology import PlaneStep, Routes, spread
from bridge.wire import CONTROL_ROOT, SUBSCRIBE_TOPIC, RoutingTable, Statement
from keys.errors import BadFrame, NotAuthorised

COMPARE_S = 5.0
COMPARE_TOPIC = f"{CONTROL_ROOT}/compare"
BUCKETS, DIGEST_BYTES = 64, 8
ANSWERS_BURST = 8
"""Digests of one neighbour that are answered at once, then one every `ANSWERS_EVERY_S`: a neighbour that invents some
gets our table again and again.
"""
ANSWERS_EVERY_S = 30.0


class StatementRelay:
    """A replica's relay of statements."""

    def __init__(self, routes: Routes, routing: RoutingTable) -> None:
        self._routes, self._routing = routes, routing
        self.next_deadline: float | None = None
        """When to compare next; None if no scope goes by planes."""
        self._answers: dict[str, Allowance] = {}

    # ------------------------------------------------------------------------------------------ passing on

    def onwards(self, statement: Statement, sender: str) -> list[str]:
        """Returns the receivers of a new statement."""
        routes = self._routes
        across = routes.is_replica(sender)
        before = routes.region_of(sender) if across else None
        scope = routes.overlay.scope_named(statement.filter)
        if scope is None or not routes.planes.is_open(scope):
            regions = [other for other in routes.topology.neighbours(routes.region) if other != before]
            return [peer for region in regions for peer in routes.replicas_up(region)]
        here = routes.planes.place_of(scope, routes.name)
        if here is None or before == routes.region:
            return []
        if not across:
            host = routes.planes.host_replica(scope, statement.member)
            if host != routes.name and host in routes.up:
                return []
        found: list[str] = []
        nearby = routes.topology.neighbours(routes.region)
        neighbours = [other for other in nearby if routes.topology.carries(other, scope)]
        for place, step in spread(here, PlaneStep.PRIMARY, before, neighbours, routes.planes.plane_count(scope)):
            if step is PlaneStep.PRIMARY:
                peer = routes.planes.replica(place)
                found += [peer] if peer in routes.up else routes.replicas_up(place[0])
        if across:  # also who stands by, or is to come; at home the gateway tells all of them itself
            found += [peer for peer in routes.replicas_up(routes.region) if peer != routes.name]
        return found

    # ------------------------------------------------------------------------------------------ comparing

    def begin_comparing(self, now: float) -> None:
        """Starts comparing if some scope goes by planes: a link came up, or the overlay changed."""
        if not any(scope.by_planes for scope in self._routes.overlay.policy.scopes):
            self.next_deadline = None
        elif self.next_deadline is None:
            self.next_deadline = now + COMPARE_S

    def tick(self, now: float) -> list[Effect]:
        """Sends our digests when due."""
        if self.next_deadline is None or now < self.next_deadline:
            return []
        self.next_deadline = now + COMPARE_S
        digest = b"".join(each.to_bytes(DIGEST_BYTES) for each in self._digests(now))
        return [Send(peer, Wire(COMPARE_TOPIC, digest)) for peer in self._neighbours()]

    def compared(self, event: Received, now: float) -> list[Effect]:
        """Answers a neighbour's digests with statements that differ. Raises BadFrame, NotAuthorised."""
        if not self._routes.is_replica(event.peer):
            raise NotAuthorised(f"{event.peer} is no replica and compares nothing with us")
        told = event.wire.payload
        if len(told) != BUCKETS * DIGEST_BYTES:
            raise BadFrame(f"digests of {len(told)} bytes")
        ours = self._digests(now)
        theirs = [int.from_bytes(told[at : at + DIGEST_BYTES]) for at in range(0, len(told), DIGEST_BYTES)]
        differ = {bucket for bucket in range(BUCKETS) if ours[bucket] != theirs[bucket]}
        if not differ or event.peer not in self._routes.up:
            return []
        allowance = self._answers.setdefault(event.peer, Allowance(ANSWERS_BURST, ANSWERS_EVERY_S, now))
        if not allowance.spend_one(now):
            return []
        rows = [one for one in self._rows(now) if _bucket(one) in differ]
        return [Send(event.peer, Wire(SUBSCRIBE_TOPIC, one.encode())) for one in rows]

    def adopt_overlay(self, now: float) -> None:
        """Takes another version of the overlay."""
        self.begin_comparing(now)
        members = self._routes.overlay.members
        self._answers = {peer: left for peer, left in self._answers.items() if peer in members}

    def _neighbours(self) -> list[str]:
        """Returns the replicas of our region, and of our place in the next regions."""
        routes, found = self._routes, dict[str, None]()
        own = routes.overlay.views[routes.region].members
        place = own.index(routes.name) if routes.name in own else 0
        for region in routes.topology.neighbours(routes.region):
            members = routes.overlay.views[region].members
            found[members[place % len(members)]] = None
        found |= dict.fromkeys(routes.replicas_up(routes.region))
        return [peer for peer in found if peer in routes.up and peer != routes.name]

    def _rows(self, now: float) -> Iterable[Statement]:
        """Returns live statements, of scopes with planes."""
        planes = {scope.filter for scope in self._routes.overlay.policy.scopes if scope.by_planes}
        return (one for one in self._routing.live(now) if one.filter in planes)

    def _digests(self, now: float) -> list[int]:
        """Returns a digest of each bucket of rows, 0 for an empty one.

        Signatures tell rows apart; authors of a few rows could choose their sum or XOR, so they are hashed.
        """
        found = [list[bytes]() for _ in range(BUCKETS)]
        for one in self._rows(now):
            found[_bucket(one)].append(one.signature)
        digests = [sha256(b"".join(sorted(rows))).digest() if rows else b"" for rows in found]
        return [int.from_bytes(digest[:DIGEST_BYTES]) for digest in digests]


def _bucket(statement: Statement) -> int:
    return crc32(f"{statement.member}\0{statement.filter}".encode()) % BUCKETS
