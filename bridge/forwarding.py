"""Algorithm 2 at one replica (A5): verify, forward once, split every share anew for every next region.

A replica of region r at place i gets each publication over several links: from the publisher's gateway if r is
the publisher's home, else from every replica of the region before r. The first copy that verifies goes on, to
every replica of each next region where somebody wants the scope and to the gateways that wait here. Shares take
the same links: each share held is split for the next region and sub-share x goes to replica x alone.

Content rides on every cross link (copies), so that one honest replica before us suffices whatever the others
do. Keys and retained publications go with their epoch, and readers get nothing in an epoch in which they may not
read. Not here: what is retained (`retaining`), announcing and pulling large content (PROTOCOL §4), repair, coded
blocks, budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    KeyHeader,
    check_share,
    to_property,
)
from keys.errors import BadFrame, KeysError, NotAuthorised, TooOften
from keys.identity import Certificate, Role
from keys.sharetree import Label, Place, Share, encode_shares, resplit

from .arriving import Admission, Admitted, refused
from .budgets import Allowance, FairTable, Repeats
from .machine import Blame, Count, Effect, Received, Send, UserProperties, Wire
from .policy import Scope
from .retaining import DataKeyName, Owing, Retained, data_key_name
from .subscriptions import KEYS_TOPIC, SUBSCRIBE_TOPIC, RoutingTable, Statement
from .views import Overlay

KEYS_HELD_MAX = 4096  # keys whose shares a replica keeps; a publisher's flood of keys evicts its own oldest
KEY_LIVE_S = 120.0  # a key seals for 60 s; newcomers get no older ones, except with what is retained
NEW_KEYS_BURST = 2_000  # data keys of one publisher at once ...
NEW_KEYS_EVERY_S = 0.001  # ... and then a thousand a second: each is verified, remembered and split for every region
NEWCOMER_BURST = 8  # restarts of a subscriber that are served at once all that is retained ...
NEWCOMER_EVERY_S = 60.0  # ... and then once a minute: stops statements without end from making us send without end


@dataclass(slots=True)
class _HeldKey:
    """A verified key header and our shares under it, each with its splits for the next regions."""

    header: KeyHeader
    since: float
    shares: dict[Label, Share] = field(default_factory=dict)
    splits: dict[tuple[int, Label], list[Share]] = field(default_factory=dict, repr=False)
    announced: dict[str, int] = field(default_factory=dict)  # peer -> how many shares it was given

    def carried(self, shares: Iterable[Share]) -> UserProperties:
        """The properties `vmq-key` and `vmq-shares`."""
        key = to_property(self.header.encode())
        return (PROPERTY_KEY, key), (PROPERTY_SHARES, to_property(encode_shares(list(shares))))


class Forwarder:
    """One replica. `seeds` gives its 32 random bytes for the splits of an epoch: durable before use, the same at every
    call, erased once the epoch is dead (PROTOCOL §3)."""

    def __init__(self, overlay: Overlay, name: str, seeds: Callable[[int], bytes]) -> None:
        self._overlay = overlay
        self._name = name
        self._seeds = seeds
        self._known_seeds: dict[int, bytes] = {}  # of live epochs: the provider reads a disk
        self._region = overlay.certificate(name).region
        self._view = overlay.views[self._region]
        self._place = Place(self._region, self._view.number, self._view.place_of(name))
        self._admission = Admission(overlay, replica=True)
        self._routing = RoutingTable(overlay)
        self._repeats: dict[bytes, Repeats] = {}  # by publisher, all of whom are certified
        self._held: FairTable[DataKeyName, _HeldKey] = FairTable(KEYS_HELD_MAX)
        self._retained: Retained[_HeldKey] = Retained()
        self._owing = Owing()
        self._sweep_at: float | None = None
        self._new_keys: dict[bytes, Allowance] = {}  # by publisher
        self._newcomers: dict[tuple[str, str], Allowance] = {}  # by (member, scope) of accepted statements
        self._up: set[str] = set()

    # ---------------------------------------------------------------------------------------------- links

    def link_up(self, peer: str) -> list[Effect]:
        """A neighbour can hear us: tell it every statement; it may have forgotten everything."""
        self._up.add(peer)
        for held in self._held.values():
            held.announced.pop(peer, None)
        if self._overlay.certificate(peer).role is not Role.REPLICA:
            return []
        theirs = self._overlay.certificate(peer).region
        return [
            Send(peer, Wire(SUBSCRIBE_TOPIC, statement.encode()))
            for statement in self._routing.all()
            if self._towards(self._overlay.certificate(statement.member).region) != theirs
        ]

    def link_down(self, peer: str) -> list[Effect]:
        self._up.discard(peer)
        return []

    def adopt(self, overlay: Overlay, now: float) -> list[Effect]:
        """Another version of the overlay, of the same regions and views."""
        self._overlay = overlay
        self._admission.adopt(overlay, now)
        self._routing.adopt(overlay)
        self._repeats = {party: seen for party, seen in self._repeats.items() if party in overlay.by_party}
        self._up.intersection_update(overlay.members)
        self._new_keys = {party: left for party, left in self._new_keys.items() if party in overlay.by_party}
        for wanted in [wanted for wanted in self._newcomers if wanted[0] not in overlay.members]:
            del self._newcomers[wanted]
        for held in self._held.values():
            for peer in [peer for peer in held.announced if peer not in overlay.members]:
                del held.announced[peer]
        self._sweep_at = None
        return self.tick(now)

    def tick(self, now: float) -> list[Effect]:
        """Erase keys, shares and retained publications whose epoch is dead or whose bump is outdated."""
        if self._sweep_at is not None and now < self._sweep_at:
            return []
        self._sweep_at = self._admission.next_stale(now)
        members, admission = self._overlay.by_party, self._admission
        held = [h.header for h in self._held.values()]
        stale = [h for h in held if h.publisher not in members or admission.stale(h.epoch_key, now)]
        for header in stale:
            self._held.pop((header.publisher, header.scope, header.key_id))
        calendar, oldest = self._overlay.policy.calendar, self._admission.oldest(now)
        self._known_seeds = {epoch: seed for epoch, seed in self._known_seeds.items() if epoch >= oldest}
        gone = self._retained.drop(
            lambda admitted, held: (
                calendar.at(admitted.header.time_ms / 1000) < oldest
                or admitted.header.publisher not in self._overlay.by_party
                or (held is not None and self._admission.stale(held.header.epoch_key, now))
            )
        )
        return [Count("retained_ended", gone)] if gone else []

    @property
    def next_deadline(self) -> float | None:
        """When something is to be erased."""
        busy = len(self._held) or len(self._retained) or len(self._known_seeds)
        return self._sweep_at if busy and self._sweep_at != float("inf") else None

    def received(self, event: Received, now: float) -> list[Effect]:
        """Anything from a peer. What does not hold is dropped, counted and charged to the link."""
        swept = self.tick(now)
        return swept + self._received(event, now) if swept else self._received(event, now)

    def _received(self, event: Received, now: float) -> list[Effect]:
        try:
            if event.wire.topic == SUBSCRIBE_TOPIC:
                return self._statement(event, now)
            properties = dict(event.wire.properties)
            if event.wire.topic == KEYS_TOPIC:
                return self._key_update(event.peer, properties, now)
            if PROPERTY_HEADER not in properties:
                raise BadFrame("publication without a signed header")
            return self._publication(event, properties, now)
        except KeysError as error:
            return refused(event.peer, error)

    # --------------------------------------------------------------------------------------- subscriptions

    def _statement(self, event: Received, now: float) -> list[Effect]:
        """Adopt a signed statement, pass it on along the tree, and serve the newcomer what is retained."""
        statement = Statement.decode(event.wire.payload)
        from_region = self._overlay.certificate(event.peer).region
        if not self._routing.accept(statement, now):
            return []
        effects: list[Effect] = [Count("statements")]
        for region in self._overlay.neighbours(self._region):
            if region != from_region or self._overlay.certificate(event.peer).role is not Role.REPLICA:
                effects += [Send(peer, event.wire) for peer in self._members_up(region)]
        if statement.on:
            effects += self._serve_newcomer(statement.member, statement.filter, now)
        return effects

    def _serve_newcomer(self, member: str, wire_filter: str, now: float) -> list[Effect]:
        """Live key headers with our shares, and retained publications, in the direction of a newcomer."""
        region = self._overlay.certificate(member).region
        direction = self._towards(region)
        scope = self._overlay.scope_named(wire_filter)
        assert scope is not None
        if direction is None:
            peers = [member] if member in self._up else []
        else:
            peers = self._members_up(direction) if direction in self._overlay.regions_of(scope) else []
        allowance = self._newcomers.setdefault((member, wire_filter), Allowance(NEWCOMER_BURST, NEWCOMER_EVERY_S, now))
        if not peers or not allowance.take(now):
            return [Count("newcomers_unserved")] if peers else []
        effects: list[Effect] = []
        for held in self._held.values():
            publisher = self._admission.publisher(held.header.publisher)
            live = held.shares and now - held.since < KEY_LIVE_S
            if live and held.header.scope == wire_filter and self._lies_between(publisher, member, region):
                effects += [self._key_wire(peer, held, held.shares) for peer in peers]
        for r in self._retained.values():
            same = r.admitted.scope.filter == scope.filter
            if same and self._lies_between(r.admitted.publisher, member, region):
                effects += [self._publication_wire(peer, r.wire, r.key, r.admitted) for peer in peers]
        return effects

    def _lies_between(self, publisher: Certificate, member: str, region: int) -> bool:
        """Whether what `publisher` sends to `member` in `region` comes through here."""
        return publisher.name != member and self._region in self._overlay.path(publisher.region, region)

    def _towards(self, region: int) -> int | None:
        """The neighbouring region on the way to `region`; None if that is ours."""
        path = self._overlay.path(self._region, region)
        return path[1] if len(path) > 1 else None

    def _members_up(self, region: int) -> list[str]:
        return [member for member in self._overlay.views[region].members if member in self._up]

    # ---------------------------------------------------------------------------------------- publications

    def _publication(self, event: Received, properties: dict[str, str], now: float) -> list[Effect]:
        admitted = self._admission.publication(event.wire, properties, now)
        self._check_route(event.peer, admitted.publisher.region, admitted.publisher.name)
        effects = self._key_update(event.peer, properties, now)
        header = admitted.header
        if not admitted.intact:
            why = "content does not match the signed header"
            return [*effects, Count("refused", 1, "content"), Blame(event.peer, False, why)]
        if header.deadline_ms and header.deadline_ms < now * 1000:
            return [*effects, Count("expired")]
        repeats = self._repeats.get(header.publisher)
        if repeats is None:
            repeats = self._repeats[header.publisher] = Repeats()
        if repeats.seen(header.sequence, header.time_ms):
            return [*effects, Count("duplicates_dropped")]
        # Not whatever key rode along: its shares are for readers of its own scope only.
        held = self._held.get(data_key_name(admitted))
        signed = (PROPERTY_HEADER, properties[PROPERTY_HEADER])
        wire = Wire(event.wire.topic, event.wire.payload, 1, header.retain, (signed,))
        if header.retain and self._retained.keep(wire, admitted, held, now) and held is None:
            self._owing.topic(wire.topic, admitted)
        peers = self._wanting(event.peer, admitted.scope, admitted.publisher.name, now)
        effects += [self._publication_wire(peer, wire, held, admitted) for peer in peers]
        return [*effects, Count("forwarded")]

    def _check_route(self, peer: str, home: int, publisher: str) -> None:
        """A publication comes from its publisher in its home region, else from the region before ours."""
        path = self._overlay.path(home, self._region)
        certificate = self._overlay.certificate(peer)
        if len(path) == 1:
            fits = peer == publisher
        else:
            fits = certificate.role is Role.REPLICA and certificate.region == path[-2]
        if not fits:
            raise NotAuthorised(f"{peer} is not on the way from {publisher} to us")

    def _wanting(self, sender: str, scope: Scope, publisher: str, now: float) -> list[str]:
        """Peers to send to: replicas of next regions, and gateways here, that somebody's statement leads to."""
        allowed = self._overlay.regions_of(scope)
        came_from = self._overlay.certificate(sender)
        arrival = came_from.region if came_from.role is Role.REPLICA else None
        peers: dict[str, None] = {}
        for member in self._routing.wanting(scope, now):
            direction = self._towards(self._overlay.certificate(member).region)
            if direction is None:
                if member != publisher and member in self._up:
                    peers[member] = None
            elif direction != arrival and direction in allowed:
                peers.update(dict.fromkeys(self._members_up(direction)))
        return list(peers)

    def _publication_wire(self, peer: str, wire: Wire, held: _HeldKey | None, admitted: Admitted) -> Send:
        """The publication for one peer; its first under a key, and every retained one, carries key and shares."""
        if held is None:
            self._owing.peer(admitted, peer)
            return Send(peer, wire)
        if not held.shares or (peer in held.announced and not wire.retain):
            held.announced.setdefault(peer, 0)
            return Send(peer, wire)
        held.announced[peer] = len(held.shares)
        carried = held.carried(self._shares_for(peer, held, held.shares))
        return Send(peer, Wire(wire.topic, wire.payload, 1, wire.retain, wire.properties + carried))

    # ---------------------------------------------------------------------------------------- keys, shares

    def _key_update(self, sender: str, properties: dict[str, str], now: float) -> list[Effect]:
        """Take a key header and new shares; whoever already has the key's header gets the news at once."""
        header = self._admission.key(properties, now)
        if header is None:
            return []
        publisher = self._admission.publisher(header.publisher)
        self._check_route(sender, publisher.region, publisher.name)
        held = self._hold(header, now)
        effects: list[Effect] = []
        fresh: dict[Label, Share] = {}
        for share in self._admission.shares(properties, self._expected(sender, publisher.region)):
            known = held.shares.get(share.label)
            if known is None:
                if len(share.label) == 1 and not check_share(header, self._place.place, share.value):
                    # Passing it on would make us the liar; withheld and complained about (PROTOCOL §3).
                    effects += [Count("complaints"), Blame(sender, False, "share misfits its commitment")]
                    continue
                held.shares[share.label] = fresh[share.label] = share
                effects.append(Count("shares_received"))
            elif known != share:
                effects.append(Blame(sender, False, "a second, different share for one label"))
        if fresh:
            effects += [
                self._key_wire(peer, held, fresh)
                for peer, given in held.announced.items()
                if peer in self._up and given < len(held.shares) and self._may_get(peer, header.scope, now)
            ]
        return effects

    def _may_get(self, peer: str, wire_filter: str, now: float) -> bool:
        """A replica passes shares on; a reader needs the right now, whatever it was given before."""
        scope = self._overlay.scope_named(wire_filter)
        replica = self._overlay.certificate(peer).role is Role.REPLICA
        return scope is not None and (replica or self._routing.may_read(peer, scope, now))

    def _hold(self, header: KeyHeader, now: float) -> _HeldKey:
        """Our entry for a verified key, made if it is new. Raises TooOften for a publisher of keys without end."""
        name = (header.publisher, header.scope, header.key_id)
        held = self._held.get(name)
        if held is None:
            allowance = self._new_keys.setdefault(header.publisher, Allowance(NEW_KEYS_BURST, NEW_KEYS_EVERY_S, now))
            if not allowance.take(now):
                raise TooOften("a publisher makes more data keys than its publications can need")
            held = _HeldKey(header, now)
            self._held.put(name, header.publisher, held)
            owed = self._owing.settle(name)
            held.announced = {peer: 0 for peer in owed.peers if peer in self._overlay.members}
            for topic in owed.topics:
                self._retained.key_came(topic, name, held)
        return held

    def _expected(self, sender: str, home: int) -> list[Place | int]:
        """What labels from this sender must say: its own place last-but-one, ours last (PROTOCOL §3)."""
        path = self._overlay.path(home, self._region)
        expected: list[Place | int] = [*path[:-1], self._place]
        if len(path) > 1:
            view = self._overlay.views[path[-2]]
            expected[-2] = Place(view.region, view.number, view.place_of(sender))
        return expected

    def _key_wire(self, peer: str, held: _HeldKey, shares: dict[Label, Share]) -> Send:
        held.announced[peer] = len(held.shares)
        return Send(peer, Wire(KEYS_TOPIC, b"", 1, False, held.carried(self._shares_for(peer, held, shares))))

    def _shares_for(self, peer: str, held: _HeldKey, shares: dict[Label, Share]) -> list[Share]:
        """Our shares as they are to a gateway; to a replica of the next region its sub-share of each."""
        certificate = self._overlay.certificate(peer)
        if certificate.role is not Role.REPLICA:
            return list(shares.values())
        view = self._overlay.views[certificate.region]
        place = view.place_of(peer)
        return [self._split(held, share, view.region)[place - 1] for share in shares.values()]

    def _split(self, held: _HeldKey, share: Share, region: int) -> list[Share]:
        split = held.splits.get((region, share.label))
        if split is None:
            epoch = held.header.epoch
            if epoch not in self._known_seeds:
                self._known_seeds[epoch] = self._seeds(epoch)
            seed = self._known_seeds[epoch]
            split = resplit(share, held.header.digest, self._overlay.views[region].hop, seed)
            held.splits[region, share.label] = split
        return split
