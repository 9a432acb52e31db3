"""Sealing: which key, how many headers a signature, and what cannot be sealed."""

from __future__ import annotations

import random

import pytest

from bridge.contract.machine import (
    Acked,
    Committed,
    Effect,
    Forget,
    LinkUp,
    Publication,
    Wire,
)
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from keys.envelope import NO_KEY, PROPERTY_HEADER, PROPERTY_KEY, Mode, SignedHeader, from_property
from tests.bridge.helpers import NOW, counted, gateway, publish, sent, shares_in
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

REPLICAS = ("r1a", "r1b", "r1c")


world = fresh(one_region, "site", scopes=[Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)])


def signed(wire: Wire) -> SignedHeader:
    return SignedHeader.decode(from_property(dict(wire.properties)[PROPERTY_HEADER]))


def key_of(wire: Wire) -> bytes:
    return signed(wire).header.key_id


def carries_key(wire: Wire) -> bool:
    assert (PROPERTY_KEY in dict(wire.properties)) == bool(shares_in(wire))
    return bool(shares_in(wire))


def one(node: GatewayNode, sequence: int, now: float, topic: str = "plant/t", size: int = 1) -> Wire:
    wires = publish(node, topic, bytes(size), sequence=sequence, now=now)
    for peer in wires:
        node.handle(Acked(peer, sequence), now)
    return wires["r1a"]


def entry(sequence: int, topic: str = "plant/t", qos: int = 1, **fields: object) -> tuple[int, int, Publication]:
    return sequence, 0, Publication(topic, b"x", qos, time_ms=int(NOW * 1000), **fields)


def forgotten(effects: list[Effect]) -> set[int]:
    return {s for e in effects if isinstance(e, Forget) for s in e.sequences}


# ---------------------------------------------------------------------------------------------------- keys


def test_a_clock_step_backwards_ends_every_key(world: World):
    node = gateway(world, "site")
    first = key_of(one(node, 1, NOW))
    assert key_of(one(node, 2, NOW - 61)) != first


def test_each_scope_has_its_own_key_and_plain_ones_none(world: World):
    node = gateway(world, "site")
    assert key_of(one(node, 1, NOW)) != key_of(one(node, 2, NOW, "open/t"))
    assert key_of(one(node, 3, NOW, "clear/t")) == NO_KEY


def test_retained_publications_always_carry_the_key(world: World):
    node = gateway(world, "site")
    for n in range(1, 5):
        assert all(carries_key(w) and w.retain for w in publish(node, "plant/t", sequence=n, retain=True).values())


# ------------------------------------------------------------------------------------------------- batches


@pytest.mark.invariant(42)
def test_what_cannot_be_sealed_is_given_up_alone(world: World):
    """A local client's publication that fits no frame must not stop the outbox, now or after every restart."""
    node = gateway(world, "site")
    bad = [entry(2, properties=(("k", "v"),) * 2000), entry(3, content_type="\ud800")]
    effects = node.handle(Committed((entry(1), *bad, entry(4))), NOW)
    assert [signed(s.wire).header.sequence for s in sent(effects, "r1a")] == [1, 4]
    assert forgotten(effects) == {2, 3}
    assert counted(effects, "unsealable") == 2
    assert len(sent(node.handle(Committed((entry(5),)), NOW))) == 3


# ---------------------------------------------------------------------------------------------- stragglers


def test_randomness_is_the_callers():
    world = make_world({1: 3}, [], {"site": 1})
    wires = []
    for seed in ("a", "a", "b"):
        node = world.node("site", random.Random(seed))
        node.handle(LinkUp("r1a"), NOW)
        wires.append(sent(node.handle(Committed((entry(1),)), NOW))[0].wire)
    assert wires[0] == wires[1]
    assert wires[0].payload != wires[2].payload
