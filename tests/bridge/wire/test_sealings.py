"""Two headers of one number under one data key: whoever has seen both names their author, and can prove it."""

from __future__ import annotations

import pytest

from bridge.contract import Effect, Prove, Received, Wire
from bridge.document import Lie, Scope
from bridge.node import GatewayNode, ReplicaNode
from bridge.topology import peers_of
from bridge.wire import SEALINGS_MAX, Admission
from keys.envelope import PROPERTY_HEADER, Mode
from tests.bridge.document.test_evidence import two_of_one_number
from tests.bridge.helpers import (
    NOW,
    counted,
    craft,
    delivered,
    forge_key,
    gateway,
    named,
    publish,
    replica,
    subscribe_at,
    subscriber,
    suspected,
    with_properties,
)
from tests.bridge.reader.test_newest_retained import rotated
from tests.sim.world import World
from tests.support.regions import fresh, row_of_regions

SCOPES = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)]
world = fresh(row_of_regions, 2, {"site": 1, "evil": 1, "control": 1, "far": 2}, SCOPES)


def proofs(effects: list[Effect]) -> list[Prove]:
    return [effect for effect in effects if isinstance(effect, Prove)]


def in_region_two(world: World) -> ReplicaNode:
    node = replica(world, "r2a", peers_of(world.overlay, "r2a"))
    subscribe_at(node, world, "far", "plant/#")
    return node


def fed(node: GatewayNode | ReplicaNode, wires: dict[str, Wire]) -> list[Effect]:
    return [effect for peer, wire in wires.items() for effect in node.handle(Received(peer, wire), NOW)]


@pytest.mark.attack(172)
def test_a_publisher_that_tells_two_replicas_two_contents_is_proved_a_liar(world: World) -> None:
    """Attack: under one key and number. Each replica passes on an honest copy, and neither is blamed for it."""
    first, second = two_of_one_number(world)
    effects = fed(in_region_two(world), {"r1a": first, "r1b": second, "r1c": first})
    assert (named(effects), suspected(effects), counted(effects, "named")) == ({"evil"}, set(), 1)
    (found,) = proofs(effects)
    assert (found.proven, found.proven.lie) == (found.evidence.check_proof(), Lie.PUBLICATIONS)


def test_a_reader_has_the_evidence_too_and_keeps_it_once(world: World) -> None:
    key = forge_key(world, "evil", "plant/#")
    first, second = two_of_one_number(world)
    node = subscriber(world, "control")
    effects: list[Effect] = []
    for place, (peer, wire) in enumerate((("r1a", first), ("r1b", second), ("r1c", first))):
        effects += fed(node, {peer: with_properties(wire, *key.properties([key.shares[place]]))})
    effects += fed(node, {"r1a": second, "r1c": first})
    assert named(effects) == {"evil"}
    assert len(proofs(effects)) == 1


def test_copies_of_an_honest_publisher_accuse_nobody(world: World) -> None:
    site, node = gateway(world, "site"), subscriber(world, "control")
    effects: list[Effect] = []
    for number in range(1, 9):
        effects += fed(node, publish(site, "plant/t", bytes([number]), sequence=number, previous=number - 1))
    assert len(delivered(effects)) == 8
    assert (named(effects), proofs(effects)) == (set(), [])


@pytest.mark.attack(173)
def test_a_thief_of_a_former_key_gets_nobody_named(world: World) -> None:
    """Attack: `evil` rotated its key because it was stolen. The thief signs what contradicts itself."""
    after = rotated(world, "evil")
    node = replica(after, "r2a", peers_of(after.overlay, "r2a"))
    subscribe_at(node, after, "far", "plant/#")
    first, second = two_of_one_number(world)
    effects = fed(node, {"r1a": first, "r1b": second})
    assert (named(effects), suspected(effects)) == (set(), {"evil"})
    assert len(proofs(effects)) == 1, "of the key it is proved, and the file says which one it is"


@pytest.mark.attack(174)
def test_a_flood_of_one_publisher_makes_nobody_forget_what_others_sealed(world: World) -> None:
    """Attack: `site` has the room for headers filled, so that the lie of `evil` is not seen."""
    admission = Admission(world.overlay, replica=True)
    first, second = two_of_one_number(world)
    admission.publication(dict(first.properties)[PROPERTY_HEADER], first.topic, NOW)
    publisher = world.overlay.certificate("site")
    made = craft(world, "site", "plant/t", sequence=1, key=forge_key(world, "site", "plant/#"))
    seen = admission.publication(dict(made.properties)[PROPERTY_HEADER], made.topic, NOW)
    for number in range(2, SEALINGS_MAX + 200):
        header = seen.header.__class__(
            **{f: getattr(seen.header, f) for f in seen.header.__slots__ if f != "sequence"}, sequence=number
        )
        admission.sealings.saw(header, seen.frame, made.topic, publisher)
    admission.publication(dict(second.properties)[PROPERTY_HEADER], second.topic, NOW)
    assert named(admission.sealings.news()) == {"evil"}


def test_plain_publications_of_one_number_accuse_nobody(world: World) -> None:
    """What is sent anew in clear has no key of its own: two headers of it are no lie."""
    two = [craft(world, "evil", "clear/t", sequence=5, mode=Mode.PLAIN, payload=p) for p in (b"a", b"b")]
    node = replica(world, "r2a", peers_of(world.overlay, "r2a"))
    effects = fed(node, dict(zip(("r1a", "r1b"), two, strict=True)))
    assert (named(effects), proofs(effects)) == (set(), [])
