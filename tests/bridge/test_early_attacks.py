"""Attacks on the room for publications of a tree to come: who waits there is judged later, and pays then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import early_room
from bridge.contract.budgets import REFUSED_BURST
from bridge.contract.machine import Effect, Received, Wire
from bridge.document import Scope
from bridge.membership.adopting import canonical
from bridge.node import ReplicaNode
from keys.envelope import PROPERTY_HEADER, Mode, from_property, header_of, sign_header, to_property
from tests.bridge.helpers import NOW, counted, craft, replica, same_version, sent, subscribe_at, suspected
from tests.sim.changing import regrown
from tests.sim.world import World, make_world

BEFORE = ("r1a", "r1b", "r1c")


@pytest.fixture
def world() -> World:
    scope = Scope("plant/#", Mode.PLAIN)
    return make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1, "evil": 1, "reader": 2}, [scope])


@pytest.fixture
def node(world: World) -> ReplicaNode:
    found = replica(world, "r2a", [*BEFORE, "reader"])
    same_version(found, *BEFORE, "reader")
    subscribe_at(found, world, "reader", "plant/#")
    return found


def of_next_tree(world: World, publisher: str, sequence: int) -> Wire:
    """A publication that is properly sealed along the tree that follows."""
    wire = craft(world, publisher, "plant/t", sequence=sequence, previous=sequence - 1, mode=Mode.PLAIN)
    header = header_of(from_property(dict(wire.properties)[PROPERTY_HEADER]))
    signed = sign_header(world.identities[publisher], replace(header, tree=1), wire.topic)
    return replace(wire, properties=((PROPERTY_HEADER, to_property(signed.encode())),))


def altered(wire: Wire) -> Wire:
    return replace(wire, payload=bytes(len(wire.payload)))


def next_tree(world: World, node: ReplicaNode) -> list[Effect]:
    return node.offered(canonical(regrown(world, world.overlay, [(1, 2), (1, 3)], NOW)), NOW + 1)


def numbers(effects: list[Effect]) -> list[tuple[bytes, int]]:
    """Returns publisher and number of each publication that the reader gets."""
    told = [header_of(from_property(dict(send.wire.properties)[PROPERTY_HEADER])) for send in sent(effects, "reader")]
    return [(header.publisher, header.sequence) for header in told]


def test_what_waited_is_verified_once_its_tree_is_there(world: World, node: ReplicaNode) -> None:
    wire = of_next_tree(world, "site", 1)
    for peer, came in (("r1b", altered(wire)), ("r1a", wire), ("r1c", wire)):
        assert counted(node.handle(Received(peer, came), NOW), "publications_ahead") == 1
    effects = next_tree(world, node)
    assert suspected(effects) == {"r1b"}
    assert numbers(effects) == [(world.identities["site"].party_id, 1)]


def test_who_brought_altered_copies_that_waited_pays_for_each(world: World, node: ReplicaNode) -> None:
    wires = [of_next_tree(world, "site", number) for number in range(1, int(REFUSED_BURST) + 9)]
    for wire in wires:
        node.handle(Received("r1b", altered(wire)), NOW)
        node.handle(Received("r1a", wire), NOW)
    effects = next_tree(world, node)
    assert len(numbers(effects)) == len(wires)
    assert counted(node.handle(Received("r1b", wires[0]), NOW + 1), "link_throttled") == 1
    assert not counted(node.handle(Received("r1a", wires[0]), NOW + 1), "link_throttled")


def test_one_publishers_flood_and_one_neighbours_copies_push_out_nothing_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = replace(early_room.PUBLICATIONS, limit_bytes=20 * early_room.EARLY_OVERHEAD_BYTES)
    monkeypatch.setattr("bridge.replica.forwarder.PUBLICATIONS", policy)
    node = replica(world, "r2a", [*BEFORE, "reader"])
    same_version(node, *BEFORE, "reader")
    subscribe_at(node, world, "reader", "plant/#")
    node.handle(Received("r1a", of_next_tree(world, "site", 1)), NOW)
    for number in range(1, 60):
        flood = of_next_tree(world, "evil", number)
        for peer in BEFORE:
            node.handle(Received(peer, flood), NOW)
        node.handle(Received("r1b", altered(of_next_tree(world, "site", number))), NOW)
    found = numbers(next_tree(world, node))
    assert (world.identities["site"].party_id, 1) in found
    assert len(found) < 20
