"""Data keys that a bump outdated while regions were apart: f + 1 replicas before us have to bring the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Count, Effect, Received, Wire
from bridge.document import Overlay
from bridge.document.policy import Scope
from bridge.node import ReplicaNode
from bridge.replica.outdated_keys import OUTDATED_BYTES, OUTDATED_OVERHEAD_BYTES, OutdatedKeys
from bridge.wire import AGE_S
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, PROPERTY_WRAPS
from tests.bridge.helpers import (
    NOW,
    counted,
    craft,
    delivered,
    forge_key,
    gateway,
    publish,
    replica,
    same_version,
    sent,
    shares_in,
    statement,
    subscriber,
    suspected,
    with_properties,
)
from tests.sim.world import World
from tests.support.regions import fresh, row_of_regions

HOME = ("r1a", "r1b", "r1c")
BACK = NOW + 60  # the regions were apart for a minute


world = fresh(row_of_regions, 2, {"site": 1, "evil": 1, "control": 2}, [Scope("plant/#")])


def bumped(world: World) -> Overlay:
    """Somebody was revoked at once."""
    return world.with_policy(scopes=tuple(replace(scope, bump=1) for scope in world.overlay.policy.scopes))


def second(world: World, overlay: Overlay, name: str = "r2a") -> ReplicaNode:
    """A replica of the next region, which hears of the bump five seconds after the regions lost each other."""
    node = replica(world, name, (*HOME, "control"))
    node.handle(Received("control", statement(world, "control", "plant/#")), NOW)
    node.forwarder.adopt_overlay(overlay, NOW + 5)
    return node


def queued(world: World, to: str = "r2a") -> dict[str, Wire]:
    """What the home region's replicas took before the bump, and have for a replica of the next."""
    wires = publish(gateway(world, "site"), "plant/t", b"x" * 100, sequence=1)
    found = {}
    for name, wire in wires.items():
        node = replica(world, name, ("site", to))
        node.handle(Received(to, statement(world, "control", "plant/#")), NOW)
        (found[name],) = [s.wire for s in sent(node.handle(Received("site", wire), NOW), to)]
    return found


def told_shares(effects: list[Effect]) -> int:
    return sum(len(shares_in(send.wire)) for send in sent(effects, "control"))


@pytest.mark.attack(108)
def test_what_lies_in_the_queue_to_the_next_region_survives_a_revocation(world: World) -> None:
    wires, node = queued(world), second(world, bumped(world))
    first = node.handle(Received("r1a", wires["r1a"]), BACK)
    assert [s.wire.topic for s in sent(first, "control")] == [wires["r1a"].topic]
    assert (told_shares(first), counted(first, "keys_unvouched")) == (0, 1)
    others = [node.handle(Received(name, wires[name]), BACK + n) for n, name in enumerate(HOME[1:])]
    assert [told_shares(effects) for effects in others] == [2, 1]
    for effects in (first, *others):
        assert not counted(effects, "refused")
        assert not suspected(effects)


def test_a_reader_behind_the_queue_opens_it(world: World) -> None:
    control, overlay = subscriber(world, "control"), bumped(world)
    effects: list[Effect] = []
    for name in ("r2a", "r2b", "r2c"):
        node, wires = second(world, overlay, name), queued(world, name)
        for teller in HOME:
            for send in sent(node.handle(Received(teller, wires[teller]), BACK), "control"):
                effects += control.handle(Received(name, send.wire), BACK)
    assert [(d.sequence, d.publication.payload) for d in delivered(effects)] == [(1, b"x" * 100)]
    assert not suspected(effects)


@pytest.mark.attack(109)
def test_one_replica_alone_gets_nothing_in_that_was_sealed_after_the_bump(world: World) -> None:
    """Its publisher has not heard of the bump, or is in league with it."""
    key, overlay = forge_key(world, "site", "plant/#"), bumped(world)
    node = second(world, overlay)
    wire = queued(world)["r1a"]
    carried = with_properties(
        craft(world, "site", "plant/t", sequence=9, key=key, now=BACK), *key.properties(shares_in(wire))
    )
    for n in range(9):
        effects = node.handle(Received("r1a", carried), BACK + n)
        assert told_shares(effects) == 0
        assert not any(PROPERTY_KEY in dict(s.wire.properties) for s in sent(effects))
    assert len(node.forwarder._keys) == 0


def test_the_publisher_itself_is_refused_after_the_grace(world: World) -> None:
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    node = replica(world, "r1a", ("site", "r2a"))
    node.forwarder.adopt_overlay(bumped(world), NOW)
    assert Count("refused", 1, "WrongEpochKey", world.identities["site"].party_id) in node.handle(
        Received("site", wire), NOW + 30
    )


@pytest.mark.attack(109)
def test_what_a_revoked_publisher_sealed_is_refused_whoever_brings_it(world: World) -> None:
    wires, node = queued(world), second(world, world.revoked("site", -1, bump=1))
    same_version(node, *HOME)
    for name in HOME:
        effects = node.handle(Received(name, wires[name]), BACK)
        assert counted(effects, "refused") == 1
        assert not sent(effects, "control")


def test_a_liar_among_those_who_vouch_keeps_no_share_of_others_back(world: World) -> None:
    wires, node = queued(world), second(world, bumped(world))
    bad = with_properties(
        wires["r1a"], (PROPERTY_SHARES, dict(wires["r1b"].properties)[PROPERTY_SHARES]), without=[PROPERTY_SHARES]
    )
    node.handle(Received("r1a", bad), BACK)
    assert told_shares(node.handle(Received("r1b", wires["r1b"]), BACK)) == 1
    assert told_shares(node.handle(Received("r1c", wires["r1c"]), BACK)) == 1


def test_such_a_key_goes_after_a_sessions_life(world: World) -> None:
    wires, node = queued(world), second(world, bumped(world))
    for name in HOME:
        node.handle(Received(name, wires[name]), BACK)
    assert len(node.forwarder._keys) == 1
    node.forwarder.tick(BACK + AGE_S - 1)
    assert len(node.forwarder._keys) == 1
    assert node.forwarder.next_deadline == BACK + AGE_S
    node.forwarder.tick(BACK + AGE_S)
    assert len(node.forwarder._keys) == 0


def test_keys_without_end_push_out_their_own(world: World) -> None:
    kept, honest = OutdatedKeys(), forge_key(world, "site", "plant/#").header
    assert kept.keep_wire(honest, "r1b", {PROPERTY_KEY: "k"}) == 1
    assert kept.keep_wire(honest, "r1b", {PROPERTY_KEY: "k", PROPERTY_SHARES: "s"}) == 1
    assert kept.keep_wire(honest, "r1c", {PROPERTY_KEY: "k"}) == 2
    most = OUTDATED_BYTES // OUTDATED_OVERHEAD_BYTES
    made = forge_key(world, "evil", "plant/#").header
    for n in range(most + 9):
        kept.keep_wire(made, "r1a", {PROPERTY_KEY: f"{n}"})
    assert most - 2 < len(kept) <= most
    assert [sender for sender, _ in kept.take_wires(honest)] == ["r1b", "r1b", "r1c"]
    assert kept.take_wires(honest) == []
    assert kept.keep_wire(made, "r1a", {PROPERTY_KEY: "x", PROPERTY_SHARES: "y" * OUTDATED_BYTES}) == 0
    assert len(kept) == 0


def test_wraps_are_kept_and_count_as_bytes(world: World) -> None:
    header = forge_key(world, "site", "plant/#").header
    outdated = OutdatedKeys()
    assert outdated.keep_wire(header, "r1a", {PROPERTY_SHARES: "s", PROPERTY_WRAPS: "w" * 1000}) == 1
    ((_, told),) = outdated.take_wires(header)
    assert told == {PROPERTY_SHARES: "s", PROPERTY_WRAPS: "w" * 1000}
    for n in range(200):
        outdated.keep_wire(header, "r1a", {PROPERTY_WRAPS: f"{n}" + "w" * 200_000})
    assert len(outdated) < 200
