"""Forwarder: algorithm 2 at one replica (A5): verify, forward once. Shares are in `resplitting`.

A replica of region r at place i gets each publication over several links: from the publisher's gateway if r is the
publisher's home, else from every replica of the region before r. The first copy verifying goes on, to every replica of
each next region where a member wants the scope and to the gateways waiting here.

Headers ride on every cross link, so that one honest replica before us suffices whatever the others do; content goes
as `content_relay` says. Keys and retained publications go with their epoch, and readers get nothing in an epoch in
which they may not read. Not here: shares (`resplitting`), retained publications (`retained`), budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

from bridge.contract import (
    COPY,
    HISTORY_TOPIC,
    PUBLICATIONS,
    Blame,
    Count,
    Deferrals,
    EarlyRoom,
    Effect,
    Loads,
    Recalled,
    Received,
    Send,
    UserProperties,
    Wire,
    earliest,
)
from bridge.document import Overlay, Scope
from bridge.replica.content_relay import Carrying
from bridge.replica.destinations import Destinations, name_of
from bridge.replica.passed import Passed
from bridge.replica.recording import Recorder
from bridge.replica.resplitting import HeldKey, KeyStage, Resplitter
from bridge.replica.retained import Owing, Retained, data_key_name
from bridge.replica.statement_relay import COMPARE_TOPIC, StatementRelay
from bridge.topology import Routes
from bridge.wire import (
    CONTROL_ROOT,
    KEYS_TOPIC,
    PROPERTY_PART,
    PROPERTY_SHOWN,
    PROPERTY_SKIP,
    PULL_TOPIC,
    RENEW_AFTER_S,
    SUBSCRIBE_TOPIC,
    SWEEP_S,
    Admission,
    Admitted,
    EarlyPublications,
    RoutingTable,
    ShownList,
    Statement,
    carries_key_alone,
    keep_publication,
    read,
    read_list,
    read_vector,
    refused,
)
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, Mode, from_property
from keys.errors import BadFrame, KeysError, NotFresh, Superseded, UnknownView

NEWCOMER_BURST = 8  # restarts of a subscriber that are served at once all that is retained ...
NEWCOMER_EVERY_S = 60.0  # ... and then once a minute, the others later: stops statements without end
FORWARDED = Count("forwarded")
RIDING_BYTES_MAX = 16 << 10
"""The longest publication, with key, shares and wraps, on which these ride: 16 KiB. They grow on the way, and could
make a publication too long for a peer that its publisher found short enough. So the key goes alone before it."""
YOUNG_S = 30.0  # after a start, statements come that others knew before; later ones are news, and find what is new only
RETELLS_BURST, RETELLS_EVERY_S = 8, 10.0  # of one link that comes up; beyond that all statements are sent later


class Forwarder:
    """The forwarding machine of a replica. `seeds`: as in `Resplitter`."""

    def __init__(self, overlay: Overlay, name: str, seeds: Callable[[int], bytes | None]) -> None:
        self._overlay = overlay
        self.routes = Routes(overlay, name)
        """Our place in the overlay, and the connected peers."""
        self._admission = Admission(overlay, replica=True)
        self.sealings = self._admission.sealings
        self.routing = RoutingTable(overlay)
        """The table of members' statements."""
        self._keys = Resplitter(self.routes, self._admission, seeds, self._key_came, self._may_get, self._over)
        self._destinations = Destinations(self.routes, self.routing)
        self._wanting = self._destinations.wanting
        self._content = Carrying(
            self.routes,
            self._admission,
            self.routing,
            self._destinations.planes,
            self._publication_wires,
            self._retain_whole,
            self._wanting,
        )
        self._retained: Retained[HeldKey] = Retained()
        self._passed = Passed(self._retained, self._content)
        self._owing = Owing()
        self._relay = StatementRelay(self.routes, self.routing)
        self._early: EarlyPublications = EarlyRoom(PUBLICATIONS)
        self.recorder = Recorder(overlay, self.routes, self.routing, self._content.passing, self._keys.get)
        """The recording of scopes with a history."""
        self._keys.grown = self.recorder.grew
        self._sweep_at: float | None = None
        self._young_until = inf
        self._met: set[str] = set()  # peers whose link was up since our start
        self._newcomers: Deferrals[tuple[str, str]] = Deferrals(NEWCOMER_BURST, NEWCOMER_EVERY_S)  # (member, scope)
        self._retells: Deferrals[str] = Deferrals(RETELLS_BURST, RETELLS_EVERY_S)  # by replica

    # ---------------------------------------------------------------------------------------------- links

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Sends a connected neighbour every statement, the keys that stand alone in its scopes, and missed content.

        It may have forgotten everything. Retained publications come with the next newcomer's statement, from the
        publisher's region on.
        """
        self.routes.up.add(peer)
        self._destinations.forget_ways()
        self._young_until = min(self._young_until, now + YOUNG_S)
        self._relay.begin_comparing(now)
        self._keys.link_up(peer, now)
        late = self._late_over(peer, now)
        if not self.routes.is_replica(peer):
            return [*self._keys_for(peer, now), *late]
        return [*self._statements_for(peer, now), *self._keys_for(peer, now), *self._content.link_up(peer, now), *late]

    def note_lost_key(self, peer: str, key: str, now: float) -> None:
        """Notes that a key header found no room at a reader: it goes again."""
        self._keys.note_lost_key(peer, key, now)

    def _statements_for(self, peer: str, now: float) -> list[Effect]:
        """Returns all statements for a replica whose link came up; postpones them if it comes up too often."""
        if not self._retells.spend_one(peer, now):
            return []
        theirs = self.routes.region_of(peer)
        return [
            Send(peer, Wire(SUBSCRIBE_TOPIC, statement.encode()))
            for statement in self.routing.live(now)
            if not self.routes.leads_back(statement.member, theirs)
        ]

    def _tell_later(self, now: float) -> list[Effect]:
        """Returns postponed wires: statements for replicas whose links came up too often, and retained publications for
        members that subscribed too often.
        """
        up = [peer for peer in self._retells.due_keys(now) if peer in self.routes.up]
        effects = [effect for peer in up for effect in self._statements_for(peer, now)]
        for member, wire_filter in self._newcomers.due_keys(now):
            effects += self._serve_newcomer(member, wire_filter, now)
        return effects

    def _keys_for(self, peer: str, now: float) -> list[Effect]:
        """Returns the entries of the repository a peer should have."""
        wanting: dict[tuple[bytes, str, int], list[str]] = {}
        effects: list[Effect] = []
        for held in self._keys:
            scope = self._overlay.scope_named(held.header.scope)
            if scope is None or not scope.keys_on_topic or held.stage is KeyStage.HEADER or not self._needed(held, now):
                continue
            way = held.header.publisher, scope.filter, held.header.tree
            if way not in wanting:
                wanting[way] = self._wanting(self._admission.publisher(way[0]), scope, way[2], now)
            if peer in wanting[way] and self._keys.concerns(peer, held):
                effects.append(self._keys.wire(peer, held))
        return effects

    def link_down(self, peer: str, now: float) -> list[Effect]:
        self.routes.up.discard(peer)
        self._destinations.forget_ways()
        self._keys.link_down(peer)
        self._content.link_down(peer, now)
        self.recorder.link_down(peer)
        return []

    def adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        """Takes another version of the overlay, or other views or trees of it."""
        self._overlay = overlay
        self.routes.adopt_overlay(overlay)
        self._admission.adopt_overlay(overlay, now)
        self.routing.adopt_overlay(overlay)
        self._passed.forget_all_but(overlay.by_party)
        self._newcomers.forget_unless(lambda wanted: wanted[0] in overlay.members)
        self._retells.forget_unless(overlay.members.__contains__)
        self._content.adopt_replicas(self.routes.added, now)
        self._destinations.adopt_overlay(overlay)
        self._relay.adopt_overlay(now)
        self._sweep_at = None
        return self._sweep(now) + self._keys.adopt_overlay(overlay, now) + self.recorder.adopt_overlay(overlay, now)

    def early(self) -> list[Received]:
        """Takes out the publications that came before their tree, in the order of arrival, to be received again."""
        return self._early.take_all()

    def erase(self) -> None:
        """Erases keys, shares and retained publications, since we are no replica any more."""
        self._keys.erase_all()
        self._retained.drop_ended(lambda *_: True)
        self._early.take_all()

    def tick(self, now: float) -> list[Effect]:
        """Passes on gathered shares, erases ended keys and publications, asks for content that does not come, and says
        what replicas for silent ones left out.
        """
        told: list[Effect] = []
        for peer, name in self._destinations.tick(now):
            told += self._content.tell_header(peer, name)
        told += self.recorder.tick(now)
        return self._sweep(now) + self._content.tick(now) + self._relay.tick(now) + self._tell_later(now) + told

    def recalled(self, event: Recalled, now: float) -> list[Effect]:
        """Hands out what the shell read of the history."""
        return self.recorder.recalled(event, now)

    def _sweep(self, now: float) -> list[Effect]:
        """Passes on gathered shares, and erases ended keys, shares and retained publications.

        They end when their epoch is dead, a bump outdated them, or their view or tree is closed.
        """
        gathered = self._keys.tick(now)
        if self._sweep_at is not None and now < self._sweep_at:
            return gathered
        self._sweep_at = min(self._admission.next_stale(now), self._keys.next_ended(now))
        if any(scope.keys_on_topic for scope in self._overlay.policy.scopes):
            self._sweep_at = min(self._sweep_at, now + SWEEP_S)
        self._keys.erase_ended(now)
        oldest = self._admission.oldest(now)
        gone = self._retained.drop_ended(
            lambda admitted, held: (
                admitted.epoch < oldest
                or admitted.header.publisher not in self._overlay.by_party
                or not self.routes.topology.is_open(admitted.tree)
                or (held is not None and self._keys.has_ended(held, now))
            )
        )
        return gathered + ([Count("retained_ended", gone)] if gone else [])

    @property
    def next_deadline(self) -> float | None:
        """The next time at which something is to be erased, passed on, or asked for."""
        keys = self._keys
        busy = keys.holds_secrets or len(self._retained)
        sweep_at = self._sweep_at if busy and self._sweep_at is not None else inf
        silent = self._destinations.silent
        silent_at = silent.next_deadline if silent.waiting else None
        later = self._retells.next_deadline, self._newcomers.next_deadline, silent_at, self.recorder.next_deadline
        gathered_at = keys.next_deadline if keys.gathering or keys.untold.peers else None
        return earliest(sweep_at, gathered_at, self._content.next_deadline, self._relay.next_deadline, *later)

    def loaded(self, event: Loads, now: float) -> list[Effect]:
        """Takes the loads of our links: wires for a replica whose link stands still go another way, too."""
        effects: list[Effect] = []
        for peer in self._destinations.loaded(event.links, now):
            effects.append(Count("links_still", 1, peer))
            for passing in self._content.lately(peer, now):
                others = self._destinations.other_receivers(passing.admitted, peer, now)
                effects += self._content.also(passing, others) + self._content.round(passing, peer)
        return effects

    def take_wire(self, event: Received, now: float) -> list[Effect]:
        """Handles a wire from a peer. An invalid one is dropped, counted and charged to the link."""
        keys, topic, properties = self._keys, event.wire.topic, dict(event.wire.properties)
        sweeps = keys.gathering or keys.untold.peers or self._sweep_at is None or now >= self._sweep_at
        effects = self._sweep(now) if sweeps else []
        try:
            if topic.startswith(CONTROL_ROOT):
                return effects + self._control(event, properties, now)
            if PROPERTY_HEADER not in properties:
                raise BadFrame("publication without a signed header")
            if PROPERTY_KEY in properties:  # each copy has other shares: whatever becomes of it
                effects += self._keys.take_key(event.peer, properties, now)
            if not sweeps and event.peer in self.routes.replicas and self._is_copy(event, properties):
                return [COPY]
            return effects + self._publication(event, properties, now)
        except KeysError as error:
            outlived = isinstance(error, Superseded) and event.peer not in self.routes.replicas
            proof = self._keys.generations.proof(event.peer, now) if outlived else None
            return [*effects, *refused(event.peer, error), *([Send(event.peer, proof)] if proof else [])]

    def _control(self, event: Received, properties: dict[str, str], now: float) -> list[Effect]:
        topic = event.wire.topic
        if topic == SUBSCRIBE_TOPIC:
            return self._statement(event, now)
        if topic == COMPARE_TOPIC:
            return self._relay.compared(event, now)
        if topic == PULL_TOPIC:
            return self._content.answer_request(event, now)
        if topic == HISTORY_TOPIC:
            return self.recorder.take_request(event, now)
        if carries_key_alone(topic):
            return self._keys.take_key(event.peer, properties, now, topic)
        raise BadFrame("a topic that brings a replica nothing")

    def _is_copy(self, event: Received, properties: dict[str, str]) -> bool:
        """Returns True for a further copy of a publication that passed lately and whole: nothing of it can be news.

        Raises NotAuthorised for a sender that is not on the publication's way.
        """
        wire = event.wire
        if len(properties) != 1 or self._destinations.silent.waiting:
            return False
        admitted = self._admission.verified((properties[PROPERTY_HEADER], wire.topic))
        if admitted is None or admitted.scope.planes or admitted.header.attributes:
            return False  # another way, or without the list of attributes that was signed
        if not self._content.is_whole_copy(admitted, wire.payload):
            return False
        self.routes.topology.check_sender(event.peer, admitted.publisher, self.routes.region, admitted.tree)
        return True

    # --------------------------------------------------------------------------------------- subscriptions

    def _statement(self, event: Received, now: float) -> list[Effect]:
        """Adopts a signed statement, passes it on, and sends a newcomer the retained publications."""
        statement = Statement.decode(event.wire.payload)
        if event.peer == statement.member and statement.expires_ms <= (now + RENEW_AFTER_S) * 1000:
            # It would end before its author says the next one, who would take itself for subscribed meanwhile.
            raise NotFresh(f"{statement.member} states what ends so soon; its clock or ours is wrong")
        goes_on = self.routing.goes_on(statement, now)
        if not self.routing.accept(statement, now):
            return []
        self._destinations.forget_ways()
        peers = self._relay.onwards(statement, event.peer)
        effects: list[Effect] = [Count("statements"), *(Send(peer, event.wire) for peer in peers)]
        if not statement.on:
            self._newcomers.drop_key((statement.member, statement.filter))
        elif not goes_on:
            effects += self._serve_newcomer(statement.member, statement.filter, now)
            effects += self._late_for(statement, now)
        return effects

    def _late_for(self, statement: Statement, now: float) -> list[Effect]:
        """Sends publications that passed before we heard that a member wants them.

        After a start statements may come behind publications. If all replicas of a region start anew, or by planes the
        one that serves a plane, nobody else sends these.
        """
        scope = self._overlay.scope_named(statement.filter)
        if scope is None or now > self._young_until or not (scope.by_planes or self._is_of_before(statement)):
            return []
        towards = set(self._towards(statement.member, scope, self._overlay.trees.newest.number))
        since_ms = 0 if statement.goes_on or not scope.by_planes else statement.version
        return self._late(scope, since_ms, towards, now)

    def _is_of_before(self, statement: Statement) -> bool:
        """Returns True for a statement made before our start, whose author has been waiting since then."""
        return statement.version < (self._young_until - YOUNG_S) * 1000

    def _late_over(self, peer: str, now: float) -> list[Effect]:
        """Sends a peer whose link came up, shortly after our start, publications that passed before."""
        is_first = peer not in self._met
        self._met.add(peer)
        if now > self._young_until:
            return []
        since_ms: dict[str, int] = {}
        for each in self.routing.live(now):
            scope = self._overlay.scope_named(each.filter)
            if scope is None or not (scope.by_planes or (is_first and self._is_of_before(each))):
                continue
            if self.routes.is_replica(peer) or each.member == peer:
                since_ms[each.filter] = min(
                    since_ms.get(each.filter, each.version), 0 if each.goes_on else each.version
                )
        scopes = [scope for scope in self._overlay.policy.scopes if scope.filter in since_ms]
        return [effect for scope in scopes for effect in self._late(scope, since_ms[scope.filter], {peer}, now)]

    def _late(self, scope: Scope, since_ms: int, towards: set[str], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for passing in self._content.passed(scope, since_ms):
            if not towards.issubset(passing.peers):
                others = towards.intersection(self._destinations.more(passing.admitted, now)).difference(passing.peers)
                effects += self._content.also(passing, sorted(others))
        return effects

    def _serve_newcomer(self, member: str, wire_filter: str, now: float) -> list[Effect]:
        """Sends live key headers with our shares, and retained publications, in the direction of a newcomer."""
        region, scope = self.routes.region_of(member), self._overlay.scope_named(wire_filter)
        if scope is None:  # gone with another version, while it waited
            return []
        ways = {tree.number: self._towards(member, scope, tree.number) for tree in self._overlay.trees.open}
        if not any(ways.values()):
            return []
        if not self._newcomers.spend_one((member, wire_filter), now):
            return [Count("newcomers_unserved")]
        effects: list[Effect] = []
        for held in self._keys:
            publisher = self._admission.publisher(held.header.publisher)
            needed = self._needed(held, now) if scope.keys_on_topic else held.use.live(scope.refresh, now)
            same = needed and held.shares and held.header.scope == wire_filter
            tree = held.header.tree
            if same and self.routes.lie_between(publisher, member, region, tree):
                concerned = [peer for peer in ways[tree] if self._keys.concerns(peer, held)]
                effects += [self._keys.wire(peer, held) for peer in concerned]
        for r in self._retained.values():
            same = r.admitted.scope.filter == scope.filter
            tree = r.admitted.tree
            if same and self.routes.lie_between(r.admitted.publisher, member, region, tree):
                for peer in ways[tree]:
                    effects += self._publication_wires(peer, r.wire, r.admitted, r.key)
        return effects

    def _towards(self, member: str, scope: Scope, tree: int) -> list[str]:
        """Returns the connected peers on the way to a member wanting the scope; the member itself, if it is here."""
        direction = self.routes.towards(self.routes.region_of(member), tree)
        if direction is None:
            return [member] if member in self.routes.up else []
        return self.routes.members_up(direction) if self.routes.topology.carries(direction, scope) else []

    # ---------------------------------------------------------------------------------------- publications

    def _publication(self, event: Received, properties: dict[str, str], now: float) -> list[Effect]:
        if self._passed.is_long_over(properties[PROPERTY_HEADER], event.wire.topic):
            return [Count("duplicates_dropped")]
        try:
            admitted = self._admission.publication(properties[PROPERTY_HEADER], event.wire.topic, now)
        except UnknownView as error:
            return keep_publication(self._early, event, error.author)
        header = admitted.header
        pieces = read(header, event.wire.payload, properties.get(PROPERTY_PART))
        goes_round = admitted.scope.planes and not header.retain
        by_planes = goes_round and header.mode is Mode.PLAIN
        check = self.routes.topology.check_plane_sender if goes_round else self.routes.topology.check_sender
        vector = read_vector(properties) if goes_round else 0
        check(event.peer, admitted.publisher, self.routes.region, admitted.tree)
        if pieces is None:
            why = "content does not match the signed header"
            return [Count("refused", 1, "content"), Blame(event.peer, False, why)]
        if header.deadline_ms and header.deadline_ms < now * 1000:
            return [Count("expired"), *self._is_over(event, properties, admitted, now)]
        held = self._keys.get((header.publisher, admitted.scope.filter, header.key_id))
        self._check_life(admitted, event.wire.topic, held, now)
        signed: UserProperties = ((PROPERTY_HEADER, properties[PROPERTY_HEADER]),)
        shown: ShownList | None = None
        if header.attributes:
            told = properties.get(PROPERTY_SHOWN, "")
            shown = read_list(from_property(told), header.attributes)
            signed += ((PROPERTY_SHOWN, told),)
        effects: list[Effect] = []
        if PROPERTY_SKIP in properties or self._destinations.silent.waiting:
            for peer, told_beside in self._destinations.take_gap_word(event.peer, admitted, properties, now):
                effects += self._content.tell_header(peer, told_beside)
        routed = self._destinations.by_planes(admitted, shown, vector, now) if by_planes else None
        if self._passed.seen(admitted, event.wire.topic):
            if routed:
                return [*effects, *self._content.more(name_of(header), routed), Count("duplicates_dropped")]
            news = self._content.take_later_copy(event.peer, event.wire.topic, signed, admitted, pieces, now, vector)
            if news and admitted.scope.history is not None:
                self.recorder.note_publication(name_of(header), len(event.wire.payload), now)
            return effects + (news if news is not None else [Count("duplicates_dropped")])
        if held is not None:
            held.use.count_use(held.header.message_limit, now)
        peers = self._destinations.by_regions(admitted, shown, now) if routed is None else routed
        whole = routed is not None
        effects += self._content.pass_first_copy(
            event.peer, event.wire.topic, signed, admitted, pieces, peers, now, whole, vector
        )
        if admitted.scope.history is not None and not header.snapshot:
            self.recorder.note_publication(name_of(header), len(event.wire.payload), now)
        effects.append(FORWARDED)
        return effects

    def _is_over(self, event: Received, properties: dict[str, str], admitted: Admitted, now: float) -> list[Effect]:
        """Passes on the header, without content, of a publication that expired on its way.

        Otherwise readers would wait for it before they deliver its successors in its scope.
        """
        header = admitted.header
        if not header.qos or header.snapshot or self._passed.seen(admitted, event.wire.topic):
            return []
        signed = ((PROPERTY_HEADER, properties[PROPERTY_HEADER]),)
        peers = self._wanting(admitted.publisher, admitted.scope, admitted.tree, now)
        return [*self._content.over(event.peer, event.wire.topic, signed, admitted, peers, now), Count("forwarded")]

    def _check_life(self, admitted: Admitted, wire_topic: str, held: HeldKey | None, now: float) -> None:
        """Raises Superseded for a sealing by an earlier life after a later one had begun.

        Raises BadFrame for a header with another order than its key.
        """
        header, name, generations = admitted.header, admitted.publisher.name, self._keys.generations
        try:
            if held is not None and held.header.order != (header.generation, header.counter):
                raise BadFrame("a publication of another generation, or of another key of it, than it names")
            if header.mode is Mode.PLAIN:
                generations.learn_plain(name, admitted, wire_topic, now)
            generations.check_life(name, header.publisher, header.generation, header.time_ms)
        except KeysError as error:
            error.author = header.publisher
            raise

    def _retain_whole(self, wire: Wire, admitted: Admitted, now: float) -> None:
        """Retains a publication whose content is whole."""
        held = self._keys.get(data_key_name(admitted))
        if self._retained.keep_value(wire, admitted, held, now) and held is None:
            self._owing.owe_topic(wire.topic, admitted)

    def _publication_wires(
        self, peer: str, wire: Wire, admitted: Admitted, held: HeldKey | None = None
    ) -> list[Effect]:
        """Returns the wires of a publication for a peer.

        The first under a key, and every retained one, carries key and shares, unless the key stands alone or the wire
        would be long: then the key goes before it.
        """
        scope = admitted.scope
        if (scope.shown or scope.planes) and (said := self._destinations.beside(peer, admitted)):
            wire = replace(wire, properties=(*wire.properties, *said))
        # Not whatever key rode along: its shares are for readers of its own scope only.
        held = held or self._keys.get((admitted.header.publisher, scope.filter, admitted.header.key_id))
        if held is None:
            self._owing.owe_peer(admitted, peer)
            return [Send(peer, wire)]
        if scope.keys_on_topic:
            if not self._keys.concerns(peer, held):
                return [Send(peer, wire)]
            told = peer in held.announced or held.stage is KeyStage.HEADER
            held.announced.setdefault(peer, 0)
            return [Send(peer, wire)] if told else [self._keys.wire(peer, held), Send(peer, wire)]
        if held.announced.get(peer) and not wire.retain:  # the usual case
            return [Send(peer, wire)]
        carried = self._keys.riding(peer, held, again=wire.retain)
        if not carried:
            return [Send(peer, wire)]
        if len(wire.payload) + sum(len(value) for _, value in carried) > RIDING_BYTES_MAX:
            return [Send(peer, Wire(KEYS_TOPIC, b"", 1, False, carried)), Send(peer, wire)]
        return [Send(peer, Wire(wire.topic, wire.payload, 1, wire.retain, wire.properties + carried))]

    # ----------------------------------------------------------------------------------------------- keys

    def _key_came(self, held: HeldKey) -> None:
        """Settles debts for a key that publications named before it came: shares for their receivers, the key for
        retained ones.

        A key standing alone goes to all that want its scope, at once.
        """
        if held.kept_until and self._sweep_at is not None:
            self._sweep_at = min(self._sweep_at, held.kept_until)
        owed = self._owing.settle_key(held.name)
        known = [peer for peer in owed.peers if peer in self._overlay.members]
        scope = self._overlay.scope_named(held.header.scope)
        if scope is not None and scope.keys_on_topic:
            publisher = self._admission.publisher(held.header.publisher)
            known += self._wanting(publisher, scope, held.header.tree, held.use.since)
        held.is_recorded = held.name in self.recorder.keyless
        held.announced = {peer: 0 for peer in known if self._keys.concerns(peer, held)}
        for topic in owed.topics:
            self._retained.key_came(topic, held.name, held)

    def _needed(self, held: HeldKey, now: float) -> bool:
        """Returns True if publications sealed under the key may still come, or are retained here."""
        scope = self._overlay.scope_named(held.header.scope)
        return scope is not None and (held.use.live(scope.refresh, now) or self._retained.names_key(held.name))

    def _over(self, held: HeldKey, now: float) -> bool:
        """Returns True if an entry of the repository is to be erased. Keys that ride go when newer ones push them
        out.
        """
        return self._keys.alone(held) and not self._needed(held, now)

    def _may_get(self, peer: str, wire_filter: str, now: float) -> bool:
        """Returns True for a replica, which passes shares on, and for a reader that has the right now."""
        scope = self._overlay.scope_named(wire_filter)
        return scope is not None and (self.routes.is_replica(peer) or self.routing.may_read(peer, scope, now))
