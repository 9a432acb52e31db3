"""A publisher that lies, with a certificate and rights: it harms its own publications only, and no honest link.

Floods, garbage and keys that open nothing are in the tests of the machines that bear them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import Delay, Effect, Received, Tick, Wire
from bridge.contract.machine import Publication
from bridge.document import MemberBudgets, Scope
from bridge.node import GatewayNode, ReplicaNode
from bridge.reader.newest_retained import RETAINED_WAIT_S
from bridge.replica.content_relay import RECENT_S
from bridge.topology import peers_of
from bridge.wire import AHEAD_S, PROPERTY_PART
from keys.envelope import Mode
from tests.bridge.helpers import (
    NOW,
    counted,
    craft,
    delivered,
    forge_key,
    gateway,
    publish,
    replica,
    sent,
    subscribe_at,
    subscriber,
    suspected,
    with_properties,
)
from tests.sim.world import World
from tests.support.regions import fresh, row_of_regions

REPLICAS = ("r1a", "r1b", "r1c")
YEARS_S = 10 * 365 * 86_400


SCOPES = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)]
world = fresh(row_of_regions, 2, {"site": 1, "evil": 1, "control": 1, "far": 2}, SCOPES)
"""`evil` may publish what `site` may."""


def feed(node: GatewayNode, wires: dict[str, Wire], now: float = NOW) -> list[Effect]:
    return [effect for peer, wire in wires.items() for effect in node.handle(Received(peer, wire), now)]


@pytest.mark.attack(14)
@pytest.mark.parametrize("topic", ["plant/t", "clear/t"])
def test_two_contents_of_one_number_suspect_nobody_on_the_way_and_one_of_them_is_delivered(world: World, topic: str):
    """Attack: two headers of one number and time, each properly signed and under a key of its own, told to different
    replicas."""
    keys = [forge_key(world, "evil", "plant/#", salt) for salt in (0, 1)] if topic == "plant/t" else [None, None]
    mode = Mode.COPIES if keys[0] else Mode.PLAIN
    two = [
        craft(world, "evil", topic, sequence=5, key=k, mode=mode, payload=p)
        for k, p in zip(keys, (b"a", b"b"), strict=True)
    ]
    told = {}
    for place, (peer, which) in enumerate((("r1a", 0), ("r1b", 1), ("r1c", 0))):
        key = keys[which]
        told[peer] = two[which] if key is None else with_properties(two[which], *key.properties([key.shares[place]]))
    next_one, reader = replica(world, "r2a", peers_of(world.overlay, "r2a")), subscriber(world, "control")
    subscribe_at(next_one, world, "far", topic[:-1] + "#")
    on_the_way: list[Effect] = []
    for name, wire in told.items():
        node = replica(world, name, peers_of(world.overlay, name))
        subscribe_at(node, world, "far", topic[:-1] + "#", via="r2a")
        effects = node.handle(Received("evil", wire), NOW)
        assert counted(effects, "forwarded") == 1
        for send in sent(effects, "r2a"):
            on_the_way += next_one.handle(Received(name, send.wire), NOW)
    assert counted(on_the_way, "forwarded") == 1
    assert (counted(on_the_way, "refused"), suspected(on_the_way)) == (0, set())
    read = feed(reader, told)
    assert [d.publication.payload for d in delivered(read)] == [b"a"]
    assert (counted(read, "refused"), suspected(read)) == (0, set())


def test_content_of_one_header_is_never_that_of_another_of_the_same_number_and_time(world: World):
    """Attack: a header without its content, then another one of the same number and millisecond with its own."""
    node = subscriber(world, "control")
    told, other = (craft(world, "evil", "clear/t", sequence=5, mode=Mode.PLAIN, payload=p) for p in (b"a", b"b"))
    announced = replace(told, payload=b"", properties=(*told.properties, (PROPERTY_PART, "-")))
    effects = feed(node, {"r1a": announced, "r1b": other})
    assert delivered(effects) == []
    assert [d.publication.payload for d in delivered(feed(node, {"r1c": told}))] == [b"a"]


@pytest.mark.attack(30)
@pytest.mark.parametrize("known", [False, True])
def test_a_retained_value_of_a_time_to_come_does_not_keep_others_out(world: World, known: bool):
    """Attack: sealed ten years ahead, it would outrank until then whatever anybody else retains on its topic; and what
    comes late from others would be dropped as its replay. A bad replica may bring it though honest ones refuse it."""
    key, later_ms = forge_key(world, "evil", "plant/#"), int((NOW + YEARS_S) * 1000)
    lie = craft(world, "evil", "plant/t", sequence=9, key=key, time_ms=later_ms, retain=True, payload=b"for ever")
    honest = replica(world, "r1a", peers_of(world.overlay, "r1a"))
    assert counted(honest.handle(Received("evil", lie), NOW), "refused") == 1
    node = subscriber(world, "control")
    if known:
        first = craft(world, "evil", "plant/t", sequence=1, key=key)
        feed(node, {r: with_properties(first, *key.properties([key.shares[i]])) for i, r in enumerate(REPLICAS)})
    feed(node, {r: with_properties(lie, *key.properties([key.shares[i]])) for i, r in enumerate(REPLICAS)})
    node.handle(Tick(), NOW + RETAINED_WAIT_S)
    effects = feed(node, publish(gateway(world, "site"), "plant/t", b"true", sequence=1, retain=True), NOW + 30)
    effects += node.handle(Tick(), NOW + 30 + RETAINED_WAIT_S)
    found = [d.publication for d in delivered(effects)]
    assert [(p.payload, p.retain) for p in found] == [(b"true", True)]


def test_a_value_sealed_by_a_clock_within_what_clocks_may_differ_is_retained(world: World):
    node = subscriber(world, "control")
    wires = publish(gateway(world, "site"), "plant/t", b"x", sequence=1, retain=True, now=NOW + AHEAD_S - 1)
    effects = feed(node, wires) + node.handle(Tick(), NOW + RETAINED_WAIT_S)
    found: list[Publication] = [d.publication for d in delivered(effects)]
    assert [(p.payload, p.retain) for p in found] == [(b"x", True)]


@pytest.mark.attack(38)
def test_who_brings_a_key_of_its_own_with_anothers_header_spends_none_of_the_others_budget(world: World):
    """Attack: what passed long ago is not verified again, but a key that rides on it is. So a publisher could have new
    keys without end charged to whom it named, whose acknowledgements would then come hours later."""
    overlay = world.with_policy(budgets=MemberBudgets(keys=1))
    node = ReplicaNode(overlay, world.identities["r1a"], "r1a", lambda epoch: bytes(32))
    key = forge_key(world, "site", "plant/#")
    first = craft(world, "site", "plant/t", sequence=1, key=key)
    node.handle(Received("site", with_properties(first, *key.properties([key.shares[0]]))), NOW)
    long_over = NOW + RECENT_S + 1
    later = craft(world, "site", "plant/t", sequence=2, previous=1, key=key, now=long_over)
    node.handle(Received("site", later), long_over)
    paid = []
    for salt in range(20):
        new = forge_key(world, "evil", "plant/#", salt)
        lie = with_properties(first, *new.properties([new.shares[0]]))
        paid += node.handle(Received("evil", lie), long_over)
    assert (counted(paid, "data_keys"), counted(paid, "forwarded")) == (20, 0)
    honest = craft(world, "site", "plant/t", sequence=3, previous=2, key=key, now=long_over)
    effects = node.handle(Received("site", honest), long_over)
    assert counted(effects, "forwarded") == 1
    assert not [each for each in effects if isinstance(each, Delay)]
    assert [each for each in paid if isinstance(each, Delay)], "who made the keys waits"
