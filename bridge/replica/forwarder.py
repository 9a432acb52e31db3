"""Algorithm 2 at one replica (A5): verify, forward once; what concerns shares stands in `resplitting`.

A replica of region r at place i gets each publication over several links: from the publisher's gateway if r is
the publisher's home, else from every replica of the region before r. The first copy that verifies goes on, to
every replica of each next region where somebody wants the scope and to the gateways that wait here.

Headers ride on every cross link, so that one honest replica before us suffices whatever the others do; content goes as
`content_relay` says. Keys and retained publications go with their epoch, and readers get nothing in an epoch in which
they may not read. Not here: shares (`resplitting`), what is retained (`retained`), budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from bridge.contract import Allowance, Blame, Count, Effect, Received, Repeats, Send, Wire
from bridge.document import Overlay, Scope
from bridge.replica.content_relay import Carrying
from bridge.replica.resplitting import HeldKey, Resplitter
from bridge.replica.retained import Owing, Retained, data_key_name
from bridge.topology import Routes
from bridge.wire import (
    PROPERTY_PART,
    PULL_TOPIC,
    SUBSCRIBE_TOPIC,
    SWEEP_S,
    Admission,
    Admitted,
    RoutingTable,
    Statement,
    carries_key_alone,
    read,
    refused,
)
from keys.envelope import PROPERTY_HEADER
from keys.errors import BadFrame, KeysError, Superseded
from keys.identity import Certificate

NEWCOMER_BURST = 8  # restarts of a subscriber that are served at once all that is retained ...
NEWCOMER_EVERY_S = 60.0  # ... and then once a minute: stops statements without end from making us send without end


class Forwarder:
    """One replica. `seeds`: see `Resplitter`."""

    def __init__(self, overlay: Overlay, name: str, seeds: Callable[[int], bytes | None]) -> None:
        self._overlay = overlay
        self._routes = Routes(overlay, name)
        self._admission = Admission(overlay, replica=True)
        self._routing = RoutingTable(overlay)
        self._keys = Resplitter(self._routes, self._admission, seeds, self._key_came, self._may_get, self._over)
        self._content = Carrying(
            self._routes, self._admission, self._routing, self._publication_wires, self._keep, self._wanting
        )
        self._repeats: dict[bytes, Repeats] = {}  # by publisher, all of whom are certified
        self._retained: Retained[HeldKey] = Retained()
        self._owing = Owing()
        self._sweep_at: float | None = None
        self._newcomers: dict[tuple[str, str], Allowance] = {}  # by (member, scope) of accepted statements

    @property
    def routes(self) -> Routes:
        """Where we stand and who hears us."""
        return self._routes

    @property
    def routing(self) -> RoutingTable:
        """Who wants what."""
        return self._routing

    # ---------------------------------------------------------------------------------------------- links

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """A neighbour can hear us; it may have forgotten everything: tell it every statement, the keys that stand alone
        in what goes to it, and what it missed. What is retained comes with the next newcomer's statement, from the
        publisher's region on."""
        self._routes.up.add(peer)
        self._keys.forget_peer(peer)
        if not self._routes.is_replica(peer):
            return self._keys_for(peer, now)
        theirs = self._routes.region_of(peer)
        statements: list[Effect] = [
            Send(peer, Wire(SUBSCRIBE_TOPIC, statement.encode()))
            for statement in self._routing.all()
            if self._routes.towards(self._routes.region_of(statement.member)) != theirs
        ]
        return [*statements, *self._keys_for(peer, now), *self._content.link_up(peer, now)]

    def _keys_for(self, peer: str, now: float) -> list[Effect]:
        """Entries of the repository that a peer should have."""
        wanting: dict[tuple[bytes, str], list[str]] = {}
        effects: list[Effect] = []
        for held in self._keys:
            scope = self._overlay.scope_named(held.header.scope)
            if scope is None or not scope.keys_on_topic or not held.shares or not self._needed(held, now):
                continue
            way = held.header.publisher, scope.filter
            if way not in wanting:
                wanting[way] = self._wanting(self._admission.publisher(held.header.publisher), scope, now)
            if peer in wanting[way] and self._keys.concerns(peer, held):
                effects.append(self._keys.wire(peer, held, held.shares))
        return effects

    def link_down(self, peer: str, now: float) -> list[Effect]:
        self._routes.up.discard(peer)
        self._content.link_down(peer, now)
        return []

    def adopt(self, overlay: Overlay, now: float) -> list[Effect]:
        """Another version of the overlay, or other views of it, of the same regions."""
        self._overlay = overlay
        self._routes.adopt(overlay)
        self._admission.adopt(overlay, now)
        self._routing.adopt(overlay)
        self._repeats = {party: seen for party, seen in self._repeats.items() if party in overlay.by_party}
        for wanted in [wanted for wanted in self._newcomers if wanted[0] not in overlay.members]:
            del self._newcomers[wanted]
        self._content.adopt()
        self._sweep_at = None
        return self._sweep(now) + self._keys.adopt(overlay, now)

    def erase(self) -> None:
        """We are no replica any more: keys, shares and what is retained goes."""
        self._keys.erase_all()
        self._retained = Retained()

    def tick(self, now: float) -> list[Effect]:
        """Pass on what waited for more, erase what ended, ask for content that does not come."""
        return self._sweep(now) + self._content.tick(now)

    def _sweep(self, now: float) -> list[Effect]:
        """Pass on what waited for more. Erase keys, shares and retained publications whose epoch is dead, whose bump is
        outdated or whose view is closed."""
        gathered = self._keys.tick(now)
        if self._sweep_at is not None and now < self._sweep_at:
            return gathered
        self._sweep_at = self._admission.next_stale(now)
        if any(scope.keys_on_topic for scope in self._overlay.policy.scopes):
            self._sweep_at = min(self._sweep_at, now + SWEEP_S)
        self._keys.erase_ended(now)
        oldest = self._admission.oldest(now)
        gone = self._retained.drop(
            lambda admitted, held: (
                admitted.epoch < oldest
                or admitted.header.publisher not in self._overlay.by_party
                or (held is not None and self._keys.ended(held, now))
            )
        )
        return gathered + ([Count("retained_ended", gone)] if gone else [])

    @property
    def next_deadline(self) -> float | None:
        """When something is to be erased, passed on, or asked for."""
        busy = self._keys.holds_secrets or len(self._retained)
        sweep_at = self._sweep_at if busy and self._sweep_at is not None else inf
        asks_at = self._content.next_deadline
        at = min(sweep_at, self._keys.next_deadline, inf if asks_at is None else asks_at)
        return at if at < inf else None

    def received(self, event: Received, now: float) -> list[Effect]:
        """Anything from a peer. What does not hold is dropped, counted and charged to the link."""
        swept = self._sweep(now)
        return swept + self._received(event, now) if swept else self._received(event, now)

    def _received(self, event: Received, now: float) -> list[Effect]:
        try:
            if event.wire.topic == SUBSCRIBE_TOPIC:
                return self._statement(event, now)
            properties = dict(event.wire.properties)
            if event.wire.topic == PULL_TOPIC:
                return self._content.asked(event, now)
            if carries_key_alone(event.wire.topic):
                return self._keys.take(event.peer, properties, now, event.wire.topic)
            if PROPERTY_HEADER not in properties:
                raise BadFrame("publication without a signed header")
            return self._publication(event, properties, now)
        except Superseded as error:
            proof = None if self._routes.is_replica(event.peer) else self._keys.generations.proof(event.peer, now)
            return [*refused(event.peer, error), *([Send(event.peer, proof)] if proof else [])]
        except KeysError as error:
            return refused(event.peer, error)

    # --------------------------------------------------------------------------------------- subscriptions

    def _statement(self, event: Received, now: float) -> list[Effect]:
        """Adopt a signed statement, pass it on along the tree, and serve the newcomer what is retained."""
        statement = Statement.decode(event.wire.payload)
        from_region = self._routes.region_of(event.peer)
        if not self._routing.accept(statement, now):
            return []
        effects: list[Effect] = [Count("statements")]
        for region in self._routes.topology.neighbours(self._routes.region):
            if region != from_region or not self._routes.is_replica(event.peer):
                effects += [Send(peer, event.wire) for peer in self._routes.replicas_up(region)]
        if statement.on:
            effects += self._serve_newcomer(statement.member, statement.filter, now)
        return effects

    def _serve_newcomer(self, member: str, wire_filter: str, now: float) -> list[Effect]:
        """Live key headers with our shares, and retained publications, in the direction of a newcomer."""
        region = self._routes.region_of(member)
        direction = self._routes.towards(region)
        scope = self._overlay.scope_named(wire_filter)
        assert scope is not None
        if direction is None:
            peers = [member] if member in self._routes.up else []
        else:
            peers = self._routes.members_up(direction) if self._routes.topology.carries(direction, scope) else []
        allowance = self._newcomers.setdefault((member, wire_filter), Allowance(NEWCOMER_BURST, NEWCOMER_EVERY_S, now))
        if not peers or not allowance.take(now):
            return [Count("newcomers_unserved")] if peers else []
        effects: list[Effect] = []
        for held in self._keys:
            publisher = self._admission.publisher(held.header.publisher)
            needed = self._needed(held, now) if scope.keys_on_topic else held.use.live(scope.refresh, now)
            same = needed and held.shares and held.header.scope == wire_filter
            if same and self._routes.lie_between(publisher, member, region):
                concerned = [peer for peer in peers if self._keys.concerns(peer, held)]
                effects += [self._keys.wire(peer, held, held.shares) for peer in concerned]
        for r in self._retained.values():
            same = r.admitted.scope.filter == scope.filter
            if same and self._routes.lie_between(r.admitted.publisher, member, region):
                effects += [send for peer in peers for send in self._publication_wires(peer, r.wire, r.admitted, r.key)]
        return effects

    # ---------------------------------------------------------------------------------------- publications

    def _publication(self, event: Received, properties: dict[str, str], now: float) -> list[Effect]:
        admitted = self._admission.publication(properties[PROPERTY_HEADER], event.wire.topic, now)
        header = admitted.header
        pieces = read(header, event.wire.payload, properties.get(PROPERTY_PART))
        self._routes.topology.check_sender(event.peer, admitted.publisher, self._routes.region)
        effects = self._keys.take(event.peer, properties, now)
        if pieces is None:
            why = "content does not match the signed header"
            return [*effects, Count("refused", 1, "content"), Blame(event.peer, False, why)]
        if header.deadline_ms and header.deadline_ms < now * 1000:
            return [*effects, Count("expired")]
        held = self._keys.get(data_key_name(admitted))
        if held is not None:
            self._check_generation(admitted, held)
        repeats = self._repeats.get(header.publisher)
        if repeats is None:
            repeats = self._repeats[header.publisher] = Repeats()
        signed = ((PROPERTY_HEADER, properties[PROPERTY_HEADER]),)
        if repeats.seen(header.sequence, header.time_ms):
            news = self._content.again(event.peer, event.wire.topic, signed, admitted, pieces, now)
            return [*effects, *(news if news is not None else [Count("duplicates_dropped")])]
        if held is not None:
            held.use.count(held.header.message_limit, now)
        peers = self._wanting(admitted.publisher, admitted.scope, now)
        effects += self._content.first(event.peer, event.wire.topic, signed, admitted, pieces, peers, now)
        return [*effects, Count("forwarded")]

    def _check_generation(self, admitted: Admitted, held: HeldKey) -> None:
        """Raise Superseded for what a life of its publisher sealed when a later one had begun."""
        try:
            generation = held.header.order.generation
            self._keys.generations.check(admitted.publisher.name, generation, admitted.header.time_ms)
        except Superseded as error:
            error.author = admitted.header.publisher
            raise

    def _keep(self, wire: Wire, admitted: Admitted, now: float) -> None:
        """Retain a publication whose content is whole."""
        held = self._keys.get(data_key_name(admitted))
        if self._retained.keep(wire, admitted, held, now) and held is None:
            self._owing.topic(wire.topic, admitted)

    def _wanting(self, publisher: Certificate, scope: Scope, now: float) -> list[str]:
        """Peers to send to: replicas of next regions, and gateways here, that somebody's statement leads to."""
        arrival = self._routes.towards(publisher.region)
        peers: dict[str, None] = {}
        for member in self._routing.wanting(scope, now):
            direction = self._routes.towards(self._routes.region_of(member))
            if direction is None:
                if member != publisher.name and member in self._routes.up:
                    peers[member] = None
            elif direction != arrival and self._routes.topology.carries(direction, scope):
                peers.update(dict.fromkeys(self._routes.members_up(direction)))
        return list(peers)

    def _publication_wires(
        self, peer: str, wire: Wire, admitted: Admitted, held: HeldKey | None = None
    ) -> list[Effect]:
        """The publication for one peer; its first under a key, and every retained one, carries key and shares, unless
        the key stands alone: then it goes before the first."""
        # Not whatever key rode along: its shares are for readers of its own scope only.
        held = held or self._keys.get(data_key_name(admitted))
        if held is None:
            self._owing.peer(admitted, peer)
            return [Send(peer, wire)]
        if admitted.scope.keys_on_topic:
            if not self._keys.concerns(peer, held):
                return [Send(peer, wire)]
            told = peer in held.announced or not held.shares
            held.announced.setdefault(peer, 0)
            return [Send(peer, wire)] if told else [self._keys.wire(peer, held, held.shares), Send(peer, wire)]
        carried = self._keys.riding(peer, held, again=wire.retain)
        if carried:
            wire = Wire(wire.topic, wire.payload, 1, wire.retain, wire.properties + carried)
        return [Send(peer, wire)]

    # ----------------------------------------------------------------------------------------------- keys

    def _key_came(self, held: HeldKey) -> None:
        """Publications named this key before it came: who got them is owed shares, what is retained it. A key that
        stands alone goes to all who want its scope, at once."""
        owed = self._owing.settle(held.name)
        known = [peer for peer in owed.peers if peer in self._overlay.members]
        scope = self._overlay.scope_named(held.header.scope)
        if scope is not None and scope.keys_on_topic:
            publisher = self._admission.publisher(held.header.publisher)
            known += self._wanting(publisher, scope, held.use.since)
        held.announced = {peer: 0 for peer in known if self._keys.concerns(peer, held)}
        for topic in owed.topics:
            self._retained.key_came(topic, held.name, held)

    def _needed(self, held: HeldKey, now: float) -> bool:
        """Whether what is sealed under the key may still come, or is retained here."""
        scope = self._overlay.scope_named(held.header.scope)
        return scope is not None and (held.use.live(scope.refresh, now) or self._retained.names(held.name))

    def _over(self, held: HeldKey, now: float) -> bool:
        """Whether an entry of the repository is to be erased. Keys that ride go when newer ones push them out."""
        return self._keys.alone(held) and not self._needed(held, now)

    def _may_get(self, peer: str, wire_filter: str, now: float) -> bool:
        """A replica passes shares on; a reader needs the right now, whatever it was given before."""
        scope = self._overlay.scope_named(wire_filter)
        return scope is not None and (self._routes.is_replica(peer) or self._routing.may_read(peer, scope, now))
