"""What waited for a reader when its publisher's right ended: refused, and no honest replica is suspected for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Adopt, Effect, Received
from bridge.document import Overlay
from bridge.document.policy import Scope
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode
from bridge.wire.admission import KEPT_S
from tests.bridge.helpers import NOW, counted, delivered, gateway, publish, same_version, subscriber, suspected
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

REPLICAS = ("r1a", "r1b", "r1c")


world = fresh(one_region, "site", "other", "control", scopes=[Scope("plant/#"), Scope("open/#")])


def brought(node: GatewayNode, world: World, publisher: str, sequence: int, now: float) -> list[Effect]:
    wires = publish(gateway(world, publisher), "plant/t", sequence=sequence)
    return [effect for name in REPLICAS for effect in node.handle(Received(name, wires[name]), now)]


def without(world: World, name: str) -> Overlay:
    """The next version: the member was removed."""
    members = [member for each, member in world.overlay.members.items() if each != name]
    grants = tuple(grant for grant in world.overlay.policy.grants if grant.member != name)
    policy = replace(world.overlay.policy, version=world.overlay.policy.version + 1, grants=grants)
    return Overlay.sign(world.owner, policy, world.overlay.latest.values(), members)


def follow(node: GatewayNode, overlay: Overlay, now: float) -> None:
    assert any(isinstance(effect, Adopt) for effect in node.offered(canonical(overlay), now))


@pytest.mark.attack(110)
def test_nobody_is_suspected_for_what_was_sealed_before_a_right_ended(world: World) -> None:
    control = subscriber(world, "control")
    follow(control, world.revoked("site", -1), NOW + 60)
    effects = brought(control, world, "site", 1, NOW + 60)
    assert (counted(effects, "refused"), delivered(effects), suspected(effects)) == (0, [], set())
    same_version(control, *REPLICAS)
    effects = brought(control, world, "site", 2, NOW + 60)
    assert (counted(effects, "refused"), delivered(effects), suspected(effects)) == (3, [], set())


@pytest.mark.parametrize(("after_s", "are_suspected"), [(60, False), (KEPT_S - 1, False), (KEPT_S, True)])
def test_whose_member_was_removed_is_late_for_as_long_as_replicas_keep_it(
    world: World, after_s: float, are_suspected: bool
) -> None:
    control = subscriber(world, "control")
    same_version(control, *REPLICAS)
    wires = publish(gateway(world, "site"), "plant/t", sequence=1)
    follow(control, without(world, "site"), NOW)
    for name in REPLICAS:
        effects = control.handle(Received(name, wires[name]), NOW + after_s)
        assert counted(effects, "refused") == 1
        assert suspected(effects) == ({name} if are_suspected else set())


def test_a_member_that_is_listed_again_is_a_member(world: World) -> None:
    control = subscriber(world, "control")
    follow(control, without(world, "site"), NOW)
    policy = replace(world.overlay.policy, version=world.overlay.policy.version + 2)
    again = Overlay.sign(world.owner, policy, world.overlay.latest.values(), world.overlay.members.values())
    follow(control, again, NOW + 1)
    same_version(control, *REPLICAS)
    assert [d.sequence for d in delivered(brought(control, world, "site", 1, NOW + 2))] == [1]


def test_who_brings_what_a_stranger_signed_is_suspected(world: World) -> None:
    control, strange = subscriber(world, "control"), make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")], seed=9)
    same_version(control, *REPLICAS)
    effects = control.handle(Received("r1a", publish(gateway(strange, "site"), "plant/t", sequence=1)["r1a"]), NOW)
    assert suspected(effects) == {"r1a"}


def test_what_waited_of_who_was_revoked_closes_no_honest_link(world: World) -> None:
    control = subscriber(world, "control")
    same_version(control, *REPLICAS)
    site = gateway(world, "site")
    waits = [publish(site, "plant/t", sequence=n, previous=n - 1)["r1a"] for n in range(1, 33)]
    follow(control, world.revoked("site", -1), NOW + 60)
    for _ in range(20):
        for wire in waits:
            control.handle(Received("r1a", wire), NOW + 60)
    assert len(delivered(brought(control, world, "other", 1, NOW + 60))) == 1
