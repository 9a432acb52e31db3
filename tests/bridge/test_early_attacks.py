"""Attacks on the room for publications of a tree to come: who waits there is judged later, and pays then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import early_room, publisher_guard
from bridge.contract.budgets import REFUSED_BURST
from bridge.contract.machine import Effect, Received, Tick, Wire
from bridge.document import Scope
from bridge.membership.adopting import canonical
from bridge.node import AGAIN_AT_ONCE, ReplicaNode
from keys.envelope import PROPERTY_HEADER, Mode, from_property, header_of, sign_header, to_property
from tests.bridge.helpers import NOW, counted, craft, replica, same_version, sent, subscribe_at, suspected
from tests.sim.changing import regrown
from tests.sim.world import World
from tests.support.regions import fresh, row_of_regions

BEFORE = ("r1a", "r1b", "r1c")


world = fresh(row_of_regions, 3, {"site": 1, "evil": 1, "reader": 2}, [Scope("plant/#", Mode.PLAIN)])


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
    """Returns the effects of the next tree and of the turns behind it."""
    turns = turns_of_next_tree(world, node)
    return [effect for turn in turns for effect in turn]


def turns_of_next_tree(world: World, node: ReplicaNode) -> list[list[Effect]]:
    turns = [node.offered(canonical(regrown(world, world.overlay, ((1, 2), (1, 3)), NOW)), NOW + 1)]
    while (due := node.next_deadline) is not None and due <= NOW + 1 and len(turns) < 100:
        turns.append(node.handle(Tick(), NOW + 1))
    return turns


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


def test_no_turn_judges_more_of_what_waited_than_its_share(world: World, node: ReplicaNode) -> None:
    """Attack: a publisher lets thousands wait, and nobody is served while all of them are verified."""
    number = 3 * AGAIN_AT_ONCE + 1
    for each in range(1, number + 1):
        node.handle(Received("r1a", of_next_tree(world, "evil", each)), NOW)
    turns = turns_of_next_tree(world, node)
    assert sum(len(numbers(turn)) for turn in turns) == number
    assert max(len(numbers(turn)) for turn in turns) <= AGAIN_AT_ONCE


def test_a_publisher_pays_for_what_waited(node: ReplicaNode, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: beyond its budget a publisher's wires are dropped unread, but for those that came before their tree."""
    rate = world.overlay.policy.budgets.values[0]
    monkeypatch.setattr(publisher_guard, "BURST_S", 200 / rate)
    monkeypatch.setattr(publisher_guard, "ARRIVAL_FACTOR", 1.0)
    for each in range(1, 401):
        node.handle(Received("r1a", of_next_tree(world, "evil", each)), NOW)
    node.handle(Received("r1a", of_next_tree(world, "site", 1)), NOW)
    effects = next_tree(world, node)
    told = numbers(effects)
    assert counted(effects, "publisher_throttled") > 0
    assert 150 < sum(who == world.identities["evil"].party_id for who, _ in told) < 350
    assert (world.identities["site"].party_id, 1) in told


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
