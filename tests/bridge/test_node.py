"""Nodes as a whole: strangers, events that do not concern them, and that no wire makes one raise or spin."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract.machine import (
    Acked,
    Committed,
    Effect,
    GroupJoined,
    GroupLeft,
    LinkDown,
    LinkUp,
    Publication,
    Received,
    Send,
    Subscribed,
    Tick,
    Unsubscribed,
    Wire,
)
from bridge.document.policy import Scope
from bridge.document.scope_secret import ScopeSecret
from bridge.groups.leases import GROUPS_TOPIC, Lease
from bridge.membership.adopting import FLAG_DOCUMENT, OVERLAY_TOPIC, OfferedVersion
from bridge.membership.key_service import GRANT_TOPIC
from bridge.node import GatewayNode, ReplicaNode
from bridge.topology import peers_of
from bridge.wire.pieces import PROPERTY_PART
from bridge.wire.pulling import PULL_TOPIC, PullRequest
from bridge.wire.statements import KEYS_TOPIC, SUBSCRIBE_TOPIC
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, Mode
from tests.bridge.helpers import counted, delivered, gateway, publish, replica, sent, statement, subscriber
from tests.sim.world import NOW, World, make_world

SCOPES = [Scope("plant/#"), Scope("open/#", Mode.BLOCKS)]
WORLD = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "local": 1, "control": 2}, SCOPES)


def test_links_join_gateways_to_their_region_and_neighbouring_regions_to_each_other():
    assert peers_of(WORLD.overlay, "site") == {"r1a", "r1b", "r1c"}
    assert peers_of(WORLD.overlay, "r1a") == {"site", "local", "r2a", "r2b", "r2c"}


@pytest.mark.parametrize(
    "event", [LinkUp("r2a"), LinkDown("stranger"), Received("control", Wire("plant/t", b"")), Acked("r2a", 1)]
)
def test_a_gateway_refuses_strangers(event: LinkUp):
    effects = gateway(WORLD, "site").handle(event, NOW)
    assert counted(effects, "refused") == 1
    assert not sent(effects)


@pytest.mark.parametrize("event", [LinkUp("r1b"), LinkDown("stranger"), Received("control", Wire("plant/t", b""))])
def test_a_replica_refuses_strangers_even_of_its_own_region(event: LinkUp):
    effects = replica(WORLD, "r1a").handle(event, NOW)
    assert counted(effects, "refused") == 1


def test_a_replica_has_no_deadlines_and_ignores_what_is_for_gateways():
    node = replica(WORLD, "r1a")
    for event in (Tick(), Subscribed("#"), Unsubscribed("#"), Committed(()), Acked("site", 1)):
        assert node.handle(event, NOW) == []
    assert node.next_deadline is None


def test_outgoing_scopes_may_be_fewer_than_those_that_are_read():
    plant, open_ = WORLD.secrets
    node = GatewayNode(
        WORLD.overlay,
        WORLD.identities["site"],
        "site",
        [plant, open_],
        WORLD.keys,
        bytes,
        outgoing=[plant.clear_filter],
    )
    assert node.publisher.sealer.secret_for("plant/t") == plant
    assert node.publisher.sealer.secret_for("open/t") is None
    assert {s.peer for s in sent(node.handle(LinkUp("r1a"), NOW) + node.handle(Subscribed("open/#"), NOW))} == {"r1a"}


def test_secrets_and_payloads_are_in_no_repr():
    secret = WORLD.secrets[0]
    assert isinstance(secret, ScopeSecret)
    ((_, key), *_) = WORLD.keys
    publication = Publication("plant/t", b"classified")
    node = subscriber(WORLD, "control")
    text = f"{secret!r} {WORLD.keys!r} {publication!r} {node.collector!r} {Committed(((1, 0, publication),))!r}"
    assert repr(key)[2:-1] not in text
    assert "classified" not in text


def test_own_publications_do_not_come_back():
    world = make_world({1: 3}, [], {"site": 1})
    node = subscriber(world, "site")
    for peer, wire in publish(node, "plant/t", sequence=1).items():
        assert not delivered(node.handle(Received(peer, wire), NOW))


# -------------------------------------------------------------------------------------------------- fuzzing


def wires_of(world: World) -> list[Wire]:
    """Everything that honest parties send around: material to mutate."""
    site = gateway(world, "site")
    wires = [
        w for n in range(1, 4) for w in publish(site, "plant/t", sequence=n, previous=n - 1, retain=n == 2).values()
    ]
    wires += publish(site, "open/t", bytes(2000), sequence=4).values()
    near = replica(world, "r1a", peers_of(world.overlay, "r1a"))
    near.handle(Received("r2a", statement(world, "control", "plant/#")), NOW)
    wires += [s.wire for w in wires for s in sent(near.handle(Received("site", w), NOW))]
    far = replica(world, "r2a", peers_of(world.overlay, "r2a"))
    far.handle(Received("control", statement(world, "control", "plant/#")), NOW)
    now_ms = int(NOW * 1000)
    leases = [
        Lease(member, "plant/#", bytes(16), now_ms, on, now_ms, now_ms + 60_000, now_ms, now_ms + 60_000)
        for member, on in (("site", True), ("control", True), ("control", False))
    ]
    return [
        *wires,
        *(s.wire for w in wires for s in sent(far.handle(Received("r1a", w), NOW))),
        statement(world, "control", "plant/#"),
        *(Wire(GROUPS_TOPIC, lease.signed(world.identities[lease.member]).encode()) for lease in leases),
        *(
            Wire(PULL_TOPIC, PullRequest(world.identities["site"].party_id, n, 0, p).encode())
            for n in range(1, 7)
            for p in ((), (0,), (1, 2))
        ),
        Wire(OVERLAY_TOPIC, OfferedVersion(2, bytes(32)).encode()),
        Wire(OVERLAY_TOPIC, OfferedVersion(2, bytes(32)).encode(FLAG_DOCUMENT) + zlib.compress(b"[" * 99_999)),
    ]


MATERIAL = wires_of(WORLD)
NAMES = ("site", "local", "control", "r1a", "r1b", "r1c", "r2a", "r2b", "r2c", "stranger")
TOPICS = (
    KEYS_TOPIC,
    PULL_TOPIC,
    SUBSCRIBE_TOPIC,
    GROUPS_TOPIC,
    OVERLAY_TOPIC,
    GRANT_TOPIC,
    "veilmq/batch/1",
    "plant/#",
    "veilmq/batch/2",
    "$SYS/x",
    "",
    "\0",
    "\ud800",
    "x" * 70_000,
)


def mutated(rng: random.Random) -> Wire:
    wire, other = rng.choice(MATERIAL), rng.choice(MATERIAL)
    properties = list(wire.properties)
    payload, topic = wire.payload, wire.topic
    match rng.randrange(7):
        case 0:
            rng.shuffle(properties)
            del properties[: rng.randrange(2)]
        case 1:
            properties += other.properties
        case 2 if properties:
            at = rng.randrange(len(properties))
            name, value = properties[at]
            cut = rng.randrange(len(value))
            properties[at] = (name, value[:cut] + rng.choice("Aé_-=\n") + value[cut + rng.randrange(2) :])
        case 3:
            payload = rng.choice([b"", other.payload, rng.randbytes(80), payload[:-1]])
        case 4:
            topic = rng.choice(TOPICS)
        case 5:
            properties = [
                (rng.choice((PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_PART)), v)
                for _, v in other.properties
            ]
    return Wire(topic, payload, rng.randrange(3), rng.random() < 0.5, tuple(properties))


@pytest.mark.invariant(43)
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_no_sequence_of_events_makes_a_node_raise_or_spin(seed: int):
    """Only what a shell could pass in; whatever the deadline, a tick at it moves it on."""
    rng = random.Random(seed)
    nodes: list[GatewayNode | ReplicaNode] = [gateway(WORLD, "control"), replica(WORLD, "r2a"), replica(WORLD, "r1a")]
    now = NOW
    for _ in range(40):
        now += rng.choice([0, 0, 0.01, 1, 11, 3700])
        peer = rng.choice(NAMES)
        entry = (rng.randrange(1, 9), 0, Publication("plant/t", b"x", rng.randrange(3)))
        event = rng.choice([
            Received(peer, mutated(rng)), Received(peer, mutated(rng)), Received(peer, rng.choice(MATERIAL)),
            LinkUp(peer), LinkDown(peer), Acked(peer, rng.randrange(-3, 5)), Tick(), Subscribed("plant/#"),
            Unsubscribed("plant/#"), Committed((entry,)), GroupJoined("g", "plant/#"), GroupLeft("g", "plant/#"),
        ])  # fmt: skip
        for node in nodes:
            check(node.handle(event, now))
            for _ in range(50):
                deadline = node.next_deadline
                if deadline is None or deadline > now:
                    break
                check(node.handle(Tick(), now))
            else:
                pytest.fail(f"deadline {deadline} is never cleared at {now}")


def check(effects: list[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Send):
            assert effect.wire.topic
            assert "\0" not in effect.wire.topic


def test_material_is_worth_mutating():
    assert {PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES} <= {name for w in MATERIAL for name, _ in w.properties}
    assert PROPERTY_PART in {name for w in MATERIAL for name, _ in w.properties}
    assert {SUBSCRIBE_TOPIC, PULL_TOPIC, "veilmq/batch/1", "veilmq/batch/2"} <= {w.topic for w in MATERIAL}
    assert Scope("plant/#", number=1) == WORLD.secrets[0].scope
