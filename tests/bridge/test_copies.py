"""Further copies of a publication that passed or was delivered: they cost little, and excuse nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import COPY
from bridge.contract.machine import Effect, Received, Wire
from bridge.node import GatewayNode, ReplicaNode
from tests.bridge.helpers import (
    NOW,
    counted,
    delivered,
    gateway,
    publish,
    replica,
    same_version,
    sent,
    subscribe_at,
    subscriber,
    suspected,
)
from tests.sim.world import World, make_world

BEFORE = ("r1a", "r1b", "r1c")
Node = ReplicaNode | GatewayNode


@pytest.fixture
def world() -> World:
    return make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "local": 1, "control": 2})


def passed_on(world: World, to: str) -> dict[str, tuple[Wire, Wire]]:
    """Returns the wires of two publications, the first with the key, that each replica of region 1 sends."""
    site = gateway(world, "site")
    both = [publish(site, "plant/t", sequence=at) for at in (1, 2)]
    found: dict[str, tuple[Wire, Wire]] = {}
    for name in BEFORE:
        node = replica(world, name, ["r2a", "local", "site"])
        subscribe_at(node, world, "control", "plant/#", via="r2a")
        subscribe_at(node, world, "local", "plant/#")
        sends = [sent(node.handle(Received("site", wires[name]), NOW), to)[0].wire for wires in both]
        found[name] = sends[0], sends[1]
    return found


def at_replica(world: World) -> Node:
    node = replica(world, "r2a", [*BEFORE, "control"])
    subscribe_at(node, world, "control", "plant/#")
    same_version(node, *BEFORE, "control")
    return node


def fed(node: Node, wires: dict[str, tuple[Wire, Wire]], at: int) -> list[list[Effect]]:
    return [node.handle(Received(peer, wires[peer][at]), NOW) for peer in wires]


def test_further_copies_at_a_replica_change_nothing_and_excuse_nobody(world: World) -> None:
    wires, node = passed_on(world, "r2a"), at_replica(world)
    fed(node, wires, 0)
    first, *others = fed(node, wires, 1)
    assert sent(first, "control")
    assert [len(each) for each in others] == [1, 1]
    assert all(each[0] is COPY for each in others)
    copy = wires["r1b"][1]
    altered = node.handle(Received("r1b", replace(copy, payload=b"x" + copy.payload[1:])), NOW)
    assert suspected(altered) == {"r1b"}
    wrong_way = node.handle(Received("control", copy), NOW)
    assert counted(wrong_way, "refused") == 1
    assert suspected(wrong_way) == {"control"}


def test_further_copies_at_a_reader_are_delivered_once_and_excuse_nobody(world: World) -> None:
    wires = passed_on(world, "local")
    reader = subscriber(world, "local")
    fed(reader, wires, 0)
    effects = fed(reader, wires, 1)
    assert len(delivered([each for some in effects for each in some])) == 1
    assert effects[-1][0] is COPY
    copy = wires["r1b"][1]
    altered = reader.handle(Received("r1b", replace(copy, payload=b"x" + copy.payload[1:])), NOW)
    assert suspected(altered) == {"r1b"}
    assert not delivered(altered)
