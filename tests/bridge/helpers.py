"""Single nodes driven by hand: what an honest gateway sends, and wires that an attacker with a certificate makes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bridge.base import matches, specificity
from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import (
    Blame,
    Committed,
    Count,
    Deliver,
    Effect,
    LinkUp,
    Publication,
    Received,
    Send,
    Subscribed,
    Wire,
)
from bridge.document import batch_topic, retained_topic
from bridge.membership.adopting import OVERLAY_TOPIC, OfferedVersion
from bridge.node import GatewayNode, ReplicaNode
from bridge.wire.statements import SUBSCRIBE_TOPIC, Statement
from keys.envelope import (
    NO_KEY,
    NO_ORDER,
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    DataKey,
    KeyHeader,
    KeyName,
    MessageHeader,
    Mode,
    content_digest,
    from_property,
    make_key,
    sign_header,
    to_property,
)
from keys.sharetree import Share, decode_shares, encode_shares
from keys.topictokens import retained_id
from tests.sim.world import NOW, World

__all__ = [
    "NOW",
    "ForgedKey",
    "counted",
    "craft",
    "delivered",
    "forge_key",
    "gateway",
    "named",
    "publish",
    "replica",
    "same_version",
    "sent",
    "shares_in",
    "statement",
    "subscribe_at",
    "suspected",
    "wire_topic",
    "with_properties",
]


def gateway(world: World, name: str, links: bool = True) -> GatewayNode:
    node = world.node(name, random.Random(name))
    assert isinstance(node, GatewayNode)
    if links:
        home = world.overlay.certificate(name).region
        for member in world.overlay.views[home].members:
            node.handle(LinkUp(member), NOW)
    return node


def replica(world: World, name: str, links: Iterable[str] = ()) -> ReplicaNode:
    node = world.node(name, random.Random(name))
    assert isinstance(node, ReplicaNode)
    for peer in links:
        node.handle(LinkUp(peer), NOW)
    return node


def same_version(node: GatewayNode | ReplicaNode, *peers: str) -> list[Effect]:
    """The neighbours say that they have the version that we have: what they bring is judged at once."""
    offer = Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(node.overlay).encode())
    return [effect for peer in peers for effect in node.handle(Received(peer, offer), NOW)]


def sent(effects: Iterable[Effect], peer: str | None = None) -> list[Send]:
    """What concerns publications and statements; offers of overlays, which every new link brings, aside."""
    of_peer = [e for e in effects if isinstance(e, Send) and peer in (None, e.peer)]
    return [send for send in of_peer if send.wire.topic != OVERLAY_TOPIC]


def delivered(effects: Iterable[Effect]) -> list[Deliver]:
    return [e for e in effects if isinstance(e, Deliver)]


def counted(effects: Iterable[Effect], name: str) -> int:
    return sum(e.amount for e in effects if isinstance(e, Count) and e.name == name)


def suspected(effects: Iterable[Effect]) -> set[str]:
    return {e.member for e in effects if isinstance(e, Blame) and not e.named}


def named(effects: Iterable[Effect]) -> set[str]:
    return {e.member for e in effects if isinstance(e, Blame) and e.named}


def publish(
    node: GatewayNode, topic: str, payload: bytes = b"x", *, sequence: int, previous: int = 0, now: float = NOW,
    qos: int = 1, retain: bool = False, expiry_s: int | None = None,
) -> dict[str, Wire]:  # fmt: skip
    """What an honest gateway sends for one publication, by replica."""
    publication = Publication(topic, payload, qos, retain, expiry_s=expiry_s, time_ms=int(now * 1000))
    effects = node.handle(Committed(((sequence, previous, publication),)), now)
    return {send.peer: send.wire for send in sent(effects)}


def statement(world: World, member: str, wire_filter: str, version: int = 1, on: bool = True, now: float = NOW) -> Wire:
    stated = Statement(member, wire_filter, version, on, int((now + 3600) * 1000))
    return Wire(SUBSCRIBE_TOPIC, stated.signed(world.identities[member]).encode())


def subscribe_at(
    node: ReplicaNode, world: World, member: str, wire_filter: str, *, via: str | None = None
) -> list[Effect]:
    """A statement of `member` arrives at a replica, from itself or `via` a neighbour."""
    return node.handle(Received(via or member, statement(world, member, wire_filter)), NOW)


@dataclass
class ForgedKey:
    """A data key of a publisher with a valid certificate, made outside `Publisher`."""

    header: KeyHeader
    data_key: DataKey
    shares: list[Share]

    def properties(self, shares: Sequence[Share] = ()) -> tuple[tuple[str, str], ...]:
        carried = ((PROPERTY_SHARES, to_property(encode_shares(shares))),) if shares else ()
        return (PROPERTY_KEY, to_property(self.header.encode())), *carried


def forge_key(
    world: World, publisher: str, scope: str, salt: int = 0, *, epoch: int = 0, bump: int = 0, messages: int = 64
) -> ForgedKey:
    """A correct key; what is wrong with it is the test's choice."""
    overlay = world.overlay
    found = overlay.scope_named(scope)
    assert found is not None
    secret = next(s for s in world.secrets if s.scope.filter == scope)
    hops = overlay.key_hops(found, overlay.certificate(publisher).region)
    draw = random.Random(f"{publisher}{scope}{salt}").randbytes
    name = KeyName(secret.scope.filter, epoch, bump)
    key = None if found.shares_only else world.keys.get(name)
    return ForgedKey(*make_key(world.identities[publisher], name, hops, 1, messages, key, draw))


def wire_topic(world: World, publisher: str, topic: str, *, retain: bool = False) -> str:
    """Where what a member publishes on a clear topic travels; wire topics, and topics of no scope, as they are."""
    inside = [secret for secret in world.secrets if matches(secret.clear_filter, topic)]
    if not inside:
        return topic
    secret = min(inside, key=lambda each: specificity(each.clear_filter))
    scope = world.overlay.scope_named(secret.scope.filter)
    assert scope is not None
    if not retain:
        return batch_topic(scope.number)
    return retained_topic(scope.number, retained_id(secret.token_key, topic), world.identities[publisher].party_id)


def craft(
    world: World, publisher: str, topic: str, *, sequence: int, previous: int = 0, key: ForgedKey | None = None,
    key_id: bytes = NO_KEY, mode: Mode = Mode.COPIES, payload: bytes = b"x", content: bytes | None = None,
    record: Publication | None = None, now: float = NOW, time_ms: int | None = None, deadline_ms: int = 0,
    qos: int = 1, retain: bool = False, order: tuple[int, int] | None = None, snapshot: bool = False,
    properties: tuple[tuple[str, str], ...] = (),
) -> Wire:  # fmt: skip
    """A wire whose header is properly signed by `publisher`; all else is up to the attacker."""
    identity = world.identities[publisher]
    told = order or (key.header.order if key else NO_ORDER)
    header = MessageHeader(
        publisher=identity.party_id,
        key_id=key.header.key_id if key else key_id,
        sequence=sequence,
        previous=previous,
        time_ms=int(now * 1000) if time_ms is None else time_ms,
        deadline_ms=deadline_ms,
        qos=qos,
        retain=retain,
        tombstone=False,
        mode=mode,
        digests=(),
        generation=told[0],
        counter=told[1],
        snapshot=snapshot,
    )
    clear_topic, topic = topic, wire_topic(world, publisher, topic, retain=retain)
    if content is None:
        said = record or Publication(clear_topic, payload, 1, retain, time_ms=int(now * 1000))
        clear = packed(clear_topic, [Numbered(sequence, said)]).payload
        content = key.data_key.seal(header.prefix(), sequence, topic, clear) if key else clear
    header = MessageHeader(**{f: getattr(header, f) for f in header.__slots__ if f != "digests"},
                           digests=(content_digest(content),))  # fmt: skip
    signed = to_property(sign_header(identity, header, topic).encode())
    return Wire(topic, content, 1, retain, ((PROPERTY_HEADER, signed), *properties))


def with_properties(wire: Wire, *extra: tuple[str, str], without: Sequence[str] = ()) -> Wire:
    kept = tuple(p for p in wire.properties if p[0] not in without)
    return Wire(wire.topic, wire.payload, wire.qos, wire.retain, kept + extra)


def shares_in(wire: Wire) -> list[Share]:
    return [
        share
        for name, value in wire.properties
        if name == PROPERTY_SHARES
        for share in decode_shares(from_property(value))
    ]


def subscriber(world: World, name: str, topic_filter: str = "#") -> GatewayNode:
    node = gateway(world, name)
    node.handle(Subscribed(topic_filter), NOW)
    return node
