"""Algorithm 2 at one replica (A5): verify, forward once, split every share anew for every next region.

A replica of region r at place i gets each publication over several links: from the publisher's gateway if r is
the publisher's home, else from every replica of the region before r. The first copy that verifies goes on, to
every replica of each next region where somebody wants the scope and to the gateways that wait here. Shares take
the same links: each share held is split for the next region and sub-share x goes to replica x alone.

Content rides on every cross link (copies), so that one honest replica before us suffices whatever the others
do. Not here: announcing and pulling large content (PROTOCOL §4), repair, coded blocks, budgets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from keys.envelope import (
    NO_KEY,
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    KeyHeader,
    Mode,
    SequenceWindow,
    check_share,
    to_property,
)
from keys.errors import BadFrame, KeysError, NotAuthorised
from keys.identity import Role
from keys.sharetree import Label, Place, Share, encode_shares, resplit

from .arriving import Admission, Admitted
from .machine import Blame, Count, Effect, Received, Send, UserProperties, Wire
from .subscriptions import KEYS_TOPIC, SUBSCRIBE_TOPIC, RoutingTable, Statement
from .views import Overlay, Scope

KEYS_HELD_MAX = 4096  # keys whose shares a replica keeps; a publisher's flood of keys evicts the oldest
RETAINED_MAX = 10_000  # retained publications; the owner's scopes and gateways are known, a bad one is bounded


@dataclass(slots=True)
class _HeldKey:
    """A verified key header and our shares under it, each with its splits for the next regions."""

    header: KeyHeader
    shares: dict[Label, Share] = field(default_factory=dict)
    splits: dict[tuple[int, Label], list[Share]] = field(default_factory=dict, repr=False)
    announced: dict[str, int] = field(default_factory=dict)  # peer -> how many shares it was given

    def carried(self, shares: Iterable[Share]) -> UserProperties:
        """The properties `vmq-key` and `vmq-shares`."""
        key = to_property(self.header.encode())
        return (PROPERTY_KEY, key), (PROPERTY_SHARES, to_property(encode_shares(list(shares))))


@dataclass(frozen=True, slots=True)
class _Retained:
    order: tuple[int, bytes, int]
    wire: Wire
    admitted: Admitted
    key: _HeldKey | None


class Forwarder:
    """One replica. `seed` is its 32 random bytes for splits, durable before use (PROTOCOL §3)."""

    def __init__(self, overlay: Overlay, name: str, seed: bytes) -> None:
        self._overlay = overlay
        self._name = name
        self._seed = seed
        self._region = overlay.certificate(name).region
        self._view = overlay.views[self._region]
        self._place = Place(self._region, self._view.number, self._view.place_of(name))
        self._admission = Admission(overlay)
        self._routing = RoutingTable(overlay)
        self._windows: dict[bytes, SequenceWindow] = {}
        self._held: OrderedDict[bytes, _HeldKey] = OrderedDict()
        self._owed: OrderedDict[bytes, set[str]] = OrderedDict()
        self._retained: dict[str, _Retained] = {}
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

    def received(self, event: Received, now: float) -> list[Effect]:
        """Anything from a peer. What does not hold is dropped, counted and charged to the link."""
        try:
            if event.wire.topic == SUBSCRIBE_TOPIC:
                return self._statement(event, now)
            properties = dict(event.wire.properties)
            if event.wire.topic == KEYS_TOPIC:
                return self._key_update(event.peer, properties)[1]
            if PROPERTY_HEADER not in properties:
                raise BadFrame("publication without a signed header")
            return self._publication(event, properties, now)
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]

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
            effects += self._serve_newcomer(statement.member, statement.filter)
        return effects

    def _serve_newcomer(self, member: str, wire_filter: str) -> list[Effect]:
        """Live key headers with our shares to a newcomer of this region, retained publications in its direction."""
        direction = self._towards(self._overlay.certificate(member).region)
        scope = self._overlay.scope_named(wire_filter)
        assert scope is not None
        effects: list[Effect] = []
        peers = self._members_up(direction) if direction is not None else [p for p in (member,) if p in self._up]
        for held in self._held.values():
            if held.header.scope == wire_filter:
                effects += [self._key_wire(peer, held, held.shares) for peer in peers]
        for r in self._retained.values():
            if r.admitted.scope == scope:
                effects += [self._publication_wire(peer, r.wire, r.key, r.admitted.header.key_id) for peer in peers]
        return effects

    def _towards(self, region: int) -> int | None:
        """The neighbouring region on the way to `region`; None if that is ours."""
        path = self._overlay.path(self._region, region)
        return path[1] if len(path) > 1 else None

    def _members_up(self, region: int) -> list[str]:
        return [member for member in self._overlay.views[region].members if member in self._up]

    # ---------------------------------------------------------------------------------------- publications

    def _publication(self, event: Received, properties: dict[str, str], now: float) -> list[Effect]:
        admitted = self._admission.publication(event.wire, properties)
        self._check_route(event.peer, admitted.publisher.region, admitted.publisher.name)
        held, effects = self._key_update(event.peer, properties)
        header = admitted.header
        if not admitted.intact:
            why = "content does not match the signed header"
            return [*effects, Count("refused", 1, "content"), Blame(event.peer, False, why)]
        if header.deadline_ms and header.deadline_ms < now * 1000:
            return [*effects, Count("expired")]
        window = self._windows.setdefault(header.publisher, SequenceWindow())
        if window.seen(header.sequence):
            return [*effects, Count("duplicates_dropped")]
        if held is None and header.mode is not Mode.PLAIN:
            held = self._held.get(header.key_id)
        signed = (PROPERTY_HEADER, properties[PROPERTY_HEADER])
        wire = Wire(event.wire.topic, event.wire.payload, 1, event.wire.retain, (signed,))
        if header.retain:
            self._retain(wire, admitted, held)
        peers = self._wanting(event.peer, admitted.scope, admitted.publisher.name, now)
        effects += [self._publication_wire(peer, wire, held, header.key_id) for peer in peers]
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

    def _await_key(self, key_id: bytes, peer: str) -> None:
        """`peer` got a publication before we had its key: it is owed the key when that comes."""
        if key_id != NO_KEY:
            self._owed.setdefault(key_id, set()).add(peer)
            if len(self._owed) > KEYS_HELD_MAX:
                self._owed.popitem(last=False)

    def _publication_wire(self, peer: str, wire: Wire, held: _HeldKey | None, key_id: bytes) -> Send:
        """The publication for one peer; its first under a key, and every retained one, carries key and shares."""
        if held is None:
            self._await_key(key_id, peer)
            return Send(peer, wire)
        if not held.shares or (peer in held.announced and not wire.retain):
            held.announced.setdefault(peer, 0)
            return Send(peer, wire)
        held.announced[peer] = len(held.shares)
        carried = held.carried(self._shares_for(peer, held, held.shares))
        return Send(peer, Wire(wire.topic, wire.payload, 1, wire.retain, wire.properties + carried))

    def _retain(self, wire: Wire, admitted: Admitted, held: _HeldKey | None) -> None:
        """Keep the greatest (time, publisher, sequence) of a topic; tombstones stay, or an old value returns."""
        header = admitted.header
        order = (header.time_ms, header.publisher, header.sequence)
        known = self._retained.get(wire.topic)
        if (known is None and len(self._retained) < RETAINED_MAX) or (known is not None and known.order < order):
            kept = Wire(wire.topic, wire.payload, 1, True, wire.properties)
            self._retained[wire.topic] = _Retained(order, kept, admitted, held)

    # ---------------------------------------------------------------------------------------- keys, shares

    def _key_update(self, sender: str, properties: dict[str, str]) -> tuple[_HeldKey | None, list[Effect]]:
        """Take a key header and new shares; whoever already has the key's header gets the news at once."""
        header = self._admission.key(properties)
        if header is None:
            return None, []
        publisher = self._admission.publisher(header.publisher)
        self._check_route(sender, publisher.region, publisher.name)
        held = self._held.get(header.key_id)
        if held is None:
            held = self._held[header.key_id] = _HeldKey(header)
            held.announced = dict.fromkeys(self._owed.pop(header.key_id, ()), 0)
            if len(self._held) > KEYS_HELD_MAX:
                self._held.popitem(last=False)
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
                if peer in self._up and given < len(held.shares)
            ]
        return held, effects

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
            split = resplit(share, held.header.digest, self._overlay.views[region].hop, self._seed)
            held.splits[region, share.label] = split
        return split
