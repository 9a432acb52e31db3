"""How regions are joined changes under load: nothing is lost, repeated or out of order, and nobody is blamed."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import product

import pytest

from bridge.contract import Received
from bridge.document.overlay import Overlay
from bridge.document.policy import Scope
from bridge.document.trees import Edge, Phase
from bridge.membership.adopting import OVERLAY_TOPIC, canonical
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import EventTrace, Kernel
from tests.seldom import in_turn, mostly_slow
from tests.sim.changing import changed, regrown
from tests.sim.test_secrecy import derivable, pool, recorded
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(51)

GRACE_S = 5
RING = ((1, 2), (2, 3), (3, 4), (4, 1))
ROW = RING[:3]
READERS = ("second", "far")
LIES = [behaviour for behaviour in Behaviour if "flood" not in behaviour.value and "pull" not in behaviour.value]
PLAIN, SEALED = Scope("plant/#", Mode.PLAIN), Scope("plant/#")


def ring(scope: Scope = SEALED, seed: int = 1, each: int = 3) -> World:
    """Four regions that could be joined in a circle, and are in a row."""
    gateways = {"site": 1, "second": 2, "third": 3, "far": 4}
    return make_world(dict.fromkeys(range(1, 5), each), ROW, gateways, [scope], seed=seed)


def without(edge: Edge) -> tuple[Edge, ...]:
    return tuple(each for each in RING if each != edge)


def load(kernel: Kernel, world: World, until_s: float, rate: int) -> dict[str, Traffic]:
    """Two gateways publish on topics of their own, which the two others read."""
    traffic = {name: Traffic(name) for name in ("site", "third")}
    for reader in READERS:
        subscribe(kernel, reader, "plant/#")
    for name, each in traffic.items():
        for n in range(int(rate * until_s)):
            each.publish(kernel, NOW + 4 + n / rate, f"plant/{name}/{n % 2}", b"%d" % n, qos=1 + n % 2)
    return traffic


def judge(trace: EventTrace, traffic: dict[str, Traffic], world: World) -> None:
    for reader, (name, each) in product(READERS, traffic.items()):
        of_one = [got for got in trace.delivered[reader] if got.publisher == name]
        check_safety(each.published, of_one)
        check_liveness(each.published, of_one)
    check_blame(trace.named_members(), world.liars)
    if not world.liars:
        assert trace.blamed == []


def tell(kernel: Kernel, world: World, overlay: Overlay, name: str) -> None:
    world.overlay = overlay
    document = canonical(overlay)
    kernel.call(name, lambda node, now: node.offered(document, now))  # type: ignore[attr-defined]


class Deaf(Kernel):
    """Some hear of no other overlay until a moment."""

    deaf: Collection[str] = ()
    until: float = 0.0

    def _passes(self, name: str, event: object) -> bool:
        if name in self.deaf and self.now < self.until and isinstance(event, Received):
            return event.wire.topic != OVERLAY_TOPIC
        return super()._passes(name, event)  # type: ignore[arg-type]


def deaf(kernel: Kernel, names: Collection[str], until: float) -> None:
    kernel.__class__ = Deaf
    assert isinstance(kernel, Deaf)
    kernel.deaf, kernel.until = names, until


@pytest.mark.parametrize(("late", "scope"), in_turn(["r2", "r4", "r1", "site"], [SEALED, PLAIN]))
def test_who_is_late_loses_nothing_and_makes_nobody_suspect(scope: Scope, late: str):
    world = ring(scope)
    kernel = world.kernel(random.Random(1))
    traffic = load(kernel, world, 10, 2)
    kernel.run(NOW + 7)
    those = [name for name in world.overlay.members if name.startswith(late)]
    deaf(kernel, those, NOW + 12)
    newer = regrown(world, world.overlay, without((2, 3)), kernel.now)
    for name in ("third", "site"):
        tell(kernel, world, newer, name)
    kernel.run(NOW + 12)
    for name in those:
        tell(kernel, world, newer, name)
    trace = kernel.run(NOW + 25)
    judge(trace, traffic, world)
    assert trace.figures["overlays_adopted{live}"] == len(world.overlay.members)
    if late != "site":
        assert trace.figures["publications_ahead"] > 0
    for node in kernel.nodes.values():
        assert node.overlay.trees.phase is Phase.ALONE  # type: ignore[attr-defined]
        assert node.overlay.path(2, 3) == (2, 1, 4, 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", mostly_slow(range(8), 0))
def test_swaps_under_load_with_liars_crashes_and_view_changes(seed: int):
    rng = random.Random(seed)
    world = ring(PLAIN if seed % 2 else SEALED, seed)
    for region in (1, 3):
        world.liars[f"r{region}{rng.choice('abc')}"] = frozenset(rng.sample(LIES, 2))
    kernel = world.kernel(rng, (0.001, rng.choice([0.02, 0.1])))
    traffic = load(kernel, world, 26, 2)
    missing = RING[3]
    for n in range(3):
        kernel.run(NOW + 6 + 8 * n)
        missing = rng.choice([edge for edge in RING if edge != missing])
        overlay = regrown(world, world.overlay, without(missing), kernel.now, grace_s=GRACE_S)
        if n == 1:  # views and trees change in one version
            members = overlay.latest[2].members
            overlay = changed(world, overlay, 2, members[:2], kernel.now, 3) if len(members) > 3 else overlay
        tell(kernel, world, overlay, rng.choice(["site", "second", "far"]))
        victim = rng.choice([f"r{region}{c}" for region in missing for c in "abc"])
        kernel.run(kernel.now + rng.choice([0.01, 0.5, 1.9, 2.1, 4.0]))
        if not any(name[:2] == victim[:2] for name in world.liars):
            kernel.crash(victim)
            kernel.run(kernel.now + 1)
            kernel.restart(victim)
    judge(kernel.run(NOW + 60), traffic, world)


STEPS = {"before": -0.01, "told": 0.05, "settling": 1.0, "in force": 2.05, "grace": 4.0, "closing": 7.01, "closed": 7.5}


@pytest.mark.parametrize("step", mostly_slow(STEPS, "settling", "in force", "grace"))
def test_an_end_of_the_removed_edge_is_killed_in_any_step(step: str):
    world = ring()
    kernel = world.kernel(random.Random(4))
    traffic = load(kernel, world, 9, 2)
    kernel.run(NOW + 7 + min(0.0, STEPS[step]))
    if STEPS[step] < 0:
        kernel.crash("r2b")
    kernel.run(NOW + 7)
    tell(kernel, world, regrown(world, world.overlay, without((2, 3)), kernel.now, grace_s=GRACE_S), "far")
    kernel.run(NOW + 7 + max(0.0, STEPS[step]))
    if STEPS[step] >= 0:
        kernel.crash("r2b")
    kernel.run(kernel.now + 1.5)
    kernel.restart("r2b")
    trace = kernel.run(NOW + 40)
    judge(trace, traffic, world)
    assert kernel.nodes["r2b"].overlay.trees.phase is Phase.ALONE  # type: ignore[attr-defined]


@pytest.mark.invariant(54)
def test_edges_and_a_revocation_in_one_version_both_count_at_once():
    world = ring()
    kernel = world.kernel(random.Random(2))
    traffic = load(kernel, world, 6, 5)
    kernel.run(NOW + 7)
    revoked = world.revoked("far", -1).policy.grants
    tell(kernel, world, regrown(world, world.overlay, without((2, 3)), kernel.now, grants=revoked), "site")
    kernel.run(NOW + 8)
    before = len(kernel.trace.delivered["far"])
    trace = kernel.run(NOW + 25)
    assert len(trace.delivered["far"]) == before
    check_liveness(traffic["site"].published, [got for got in trace.delivered["second"] if got.publisher == "site"])


def test_a_region_comes_and_one_that_is_a_leaf_goes():
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1, "near": 2, "far": 3}, [SEALED])
    kernel = world.kernel(random.Random(3))
    subscribe(kernel, "near", "plant/#")
    subscribe(kernel, "far", "plant/#")
    traffic = Traffic("site")
    for n in range(50):
        traffic.publish(kernel, NOW + 4 + n / 5, f"plant/{n % 2}", b"%d" % n)
    kernel.run(NOW + 7)
    tell(kernel, world, regrown(world, world.overlay, ((1, 2),), kernel.now, 0, without=3), "near")
    trace = kernel.run(NOW + 30)
    check_safety(traffic.published, trace.delivered["near"])
    check_liveness(traffic.published, trace.delivered["near"])
    assert len(trace.delivered["far"]) < 50
    assert trace.suspected() == trace.named_members() == set()
    assert kernel.nodes["r2a"].peers == {"r1a", "r1b", "r1c", "near"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("scope", [PLAIN, SEALED], ids=["plain", "sealed"])
def test_what_is_retained_moves_to_the_next_tree_and_is_told_once(scope: Scope):
    world = ring(scope)
    kernel = world.kernel(random.Random(6))
    subscribe(kernel, "second", "plant/#")
    traffic = Traffic("site")
    traffic.publish(kernel, NOW + 4, "plant/setpoint", b"21", retain=True)
    traffic.publish(kernel, NOW + 5, "plant/gone", b"1", retain=True)
    traffic.publish(kernel, NOW + 6, "plant/gone", b"", retain=True)
    kernel.run(NOW + 7)
    tell(kernel, world, regrown(world, world.overlay, without((2, 3)), kernel.now, grace_s=GRACE_S), "third")
    kernel.run(NOW + 20)
    subscribe(kernel, "far", "plant/#")
    trace = kernel.run(NOW + 30)
    assert [got.publication.payload for got in trace.delivered["far"] if got.publication.payload] == [b"21"]
    assert [got.publication.payload for got in trace.delivered["second"]] == [b"21", b"1", b""]
    assert trace.figures["retained_resealed"] == 2, "the value and the tombstone"
    assert trace.blamed == []


@pytest.mark.invariant(53)
@pytest.mark.parametrize("end", mostly_slow(["far", "third"], "far"))
def test_no_coalition_over_two_trees_holds_a_key_of_either(end: str):
    """Keys of both trees are under way while both are open; f replicas of each region are bad."""
    world = ring()
    kernel, recorders = recorded(world, random.Random(3))
    subscribe(kernel, end, "plant/#")
    traffic = Traffic("site")
    for n in range(40):
        traffic.publish(kernel, NOW + 4 + n * 0.2, f"plant/{n % 3}", b"%d" % n)
    kernel.run(NOW + 7)
    newer = world.overlay = regrown(world, world.overlay, without((2, 3)), kernel.now, grace_s=30)
    kernel.call("site", lambda node, now: node.machine.offered(canonical(newer), now))  # type: ignore[attr-defined]
    trace = kernel.run(NOW + 20)
    check_liveness(traffic.published, trace.delivered[end])
    known = pool(recorders[end].wires)
    assert {header.tree for header, _ in known.values()} == {0, 1}
    assert all(derivable(shares, header.hops) for header, shares in known.values())
    for group in product("abc", repeat=4):
        bad = [f"r{region}{c}" for region, c in zip(range(1, 5), group, strict=True)]
        seen = pool(wire for name in bad for wire in recorders[name].wires)
        assert {header.tree for header, _ in seen.values()} == {0, 1}
        assert not any(derivable(shares, header.hops) for header, shares in seen.values()), bad
