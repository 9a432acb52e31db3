"""Replicas come and go under load (A13, A14): nothing is lost, repeated or out of order, and no innocent is named."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from bridge.document.overlay import Overlay
from bridge.document.policy import Scope
from bridge.membership.adopting import canonical
from bridge.node import ReplicaNode
from bridge.topology import peers_of
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.sim.changing import changed
from tests.sim.test_secrecy import Recorder, derivable, pool, recorded
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(50)

GRACE_S = 5


class Owner:
    """Attaches and detaches at random, between `least` and two more replicas a region; never a liar, who is to stay."""

    def __init__(self, world: World, kernel: Kernel, rng: random.Random, least: int = 3) -> None:
        self.world, self.kernel, self.rng, self.least = world, kernel, rng, least
        self.overlay = world.overlay
        self.names = dict.fromkeys(world.overlay.latest, 0)

    def change(self, region: int) -> str:
        members = self.overlay.latest[region].members
        honest = [name for name in members if name not in self.world.liars]
        if len(members) > self.least and (len(members) > self.least + 1 or self.rng.random() < 0.5):
            gone = self.rng.choice(honest)
            return self.publish(region, tuple(name for name in members if name != gone), "")
        self.names[region] += 1
        name = f"r{region}x{self.names[region]}"
        return self.publish(region, (*members, name), name)

    def publish(self, region: int, members: tuple[str, ...], newcomer: str) -> str:
        kernel = self.kernel
        self.overlay = changed(self.world, self.overlay, region, members, kernel.now, GRACE_S)
        self.world.overlay = self.overlay
        if newcomer:
            kernel.add_node(newcomer, self.world.maker(newcomer, self.rng), peers_of(self.overlay, newcomer))
        there = [name for name in self.overlay.members if name in kernel.nodes]  # a key service is none of them
        told = self.rng.choice([name for name in there if name not in self.world.liars and name != newcomer])
        document = canonical(self.overlay)
        kernel.call(told, lambda node, now: node.offered(document, now))  # type: ignore[attr-defined]
        return newcomer


def honest_nodes(world: World, kernel: Kernel) -> dict[str, Overlay]:
    names = [name for name in world.overlay.members if name not in world.liars]
    return {name: kernel.nodes[name].overlay for name in names}  # type: ignore[attr-defined]


SEALED = Scope("plant/#")


def run(seed: int, changes: int, liars: bool = True, rate: int = 5, scope: Scope = SEALED) -> None:
    rng = random.Random(seed)
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "near": 1, "far": 2}, [scope], seed=seed)
    for region in (1, 2) if liars else ():
        world.liars[f"r{region}{rng.choice('abc')}"] = frozenset(rng.sample(list(Behaviour), rng.randrange(1, 4)))
    world.probability = rng.choice([0.3, 1.0])
    kernel = world.kernel(rng, (0.001, rng.choice([0.02, 0.1])))
    for reader in ("near", "far"):
        subscribe(kernel, reader, "plant/#")
    every_s = GRACE_S + 4  # ATTACH_S, floods, and the grace
    traffic = Traffic("site")
    for n in range(int(rate * (changes * every_s + 4))):
        traffic.publish(kernel, NOW + 4 + n / rate, f"plant/{n % 3}", b"%d" % n, qos=1 + n % 2)
    owner = Owner(world, kernel, rng)
    for n in range(changes):
        kernel.run(NOW + 6 + n * every_s)
        owner.change(1 + n % 2)
    trace = kernel.run(NOW + 6 + changes * every_s + 20)
    for reader in ("near", "far"):
        check_safety(traffic.published, trace.delivered[reader])
        check_liveness(traffic.published, trace.delivered[reader])
    check_blame(trace.named_members(), world.liars)
    for name, overlay in honest_nodes(world, kernel).items():
        assert overlay.policy.version == 1 + changes, name
        assert {r: v.number for r, v in overlay.views.items()} == {1: 1 + (changes + 1) // 2, 2: 1 + changes // 2}, name
        assert overlay.next_closing is None, name
    for node in kernel.nodes.values():
        if isinstance(node, ReplicaNode) and node.keeper.removed:
            assert not len(node.forwarder._keys), f"{node.name} keeps keys of a view that is over"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_attach_and_detach_under_load_with_a_liar_in_each_region(seed: int):
    run(seed, changes=6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_attach_and_detach_twenty_times_in_each_region(seed: int):
    run(100 + seed, changes=40)


@pytest.mark.slow
def test_without_liars():
    run(7, changes=4, liars=False)


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_planes_close_and_open_while_replicas_come_and_go(seed: int):
    run(seed, changes=2, liars=False, scope=Scope("plant/#", Mode.PLAIN, planes=True))


def test_a_detached_replica_is_told_when_its_view_is_closed():
    world = make_world({1: 3, 2: 4}, [(1, 2)], {"site": 1, "far": 2}, [Scope("plant/#")])
    kernel = world.kernel(random.Random(1))
    kernel.run(NOW + 3)
    newer = changed(world, world.overlay, 2, ("r2a", "r2b", "r2c"), kernel.now, GRACE_S)
    kernel.call("site", lambda node, now: node.offered(canonical(newer), now))  # type: ignore[attr-defined]
    kernel.run(kernel.now + GRACE_S - 1)
    node = kernel.nodes["r2d"]
    assert isinstance(node, ReplicaNode)
    assert not node.keeper.removed
    assert node.overlay.views[2].number == 2
    kernel.run(kernel.now + 3)
    assert node.keeper.removed
    assert "r2d" not in peers_of(kernel.nodes["r1a"].overlay, "r1a")  # type: ignore[attr-defined]
    assert kernel.trace.figures["overlays_adopted{live}"] >= 8


def coalitions(overlay: Overlay, region: int) -> list[tuple[str, ...]]:
    """Members of both views of a region of whom at most f are in either: a bad one that left and one that came too."""
    latest = overlay.latest[region]
    assert latest.former is not None
    views = (latest, latest.former)
    names = sorted({name for view in views for name in view.members})
    groups = [group for size in range(len(names) + 1) for group in combinations(names, size)]
    return [group for group in groups if all(len(view.members_among(group)) <= view.faults for view in views)]


@pytest.mark.invariant(49)
def test_no_coalition_over_two_views_holds_a_key_of_either():
    """r1b and r2b have another place in the second view; keys of both views are under way while both are open."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "far": 2}, [Scope("plant/#")])
    kernel, recorders = recorded(world, random.Random(3))
    subscribe(kernel, "far", "plant/#")
    traffic = Traffic("site")
    for n in range(100):
        traffic.publish(kernel, NOW + 4 + n * 0.2, f"plant/{n % 3}", b"%d" % n)
    for region in (1, 2):
        kernel.run(NOW + 5 + 5 * region)
        members = (f"r{region}b", f"r{region}c", f"r{region}d")
        newer = world.overlay = changed(world, world.overlay, region, members, kernel.now, 30)
        recorders[members[-1]] = Recorder(world.node(members[-1], random.Random(4)))
        kernel.add_node(members[-1], lambda name=members[-1]: recorders[name], peers_of(newer, members[-1]))
        kernel.call("site", lambda node, now, newer=newer: node.machine.offered(canonical(newer), now))  # type: ignore[attr-defined,misc]
    trace = kernel.run(NOW + 60)
    check_safety(traffic.published, trace.delivered["far"])
    check_liveness(traffic.published, trace.delivered["far"])
    known = pool(recorders["far"].wires)
    assert {tuple(hop.view for hop in header.hops) for header, _ in known.values()} == {(1, 1), (2, 1), (2, 2)}
    pairs = list(product(coalitions(newer, 1), coalitions(newer, 2)))
    assert any({"r1a", "r1d"} <= set(first) for first, _ in pairs)
    for first, second in pairs:
        seen = [wire for name in (*first, *second) for wire in recorders[name].wires]
        for header, shares in pool(seen).values():
            assert not derivable(shares, header.hops), (first, second)


def test_a_gateway_that_was_away_while_a_view_was_replaced_and_closed_loses_nothing():
    """It seals for the old view before it hears of the new one; the region refuses that, and it sends all anew."""
    world = make_world({1: 3}, [], {"site": 1, "near": 1}, [Scope("plant/#")])
    kernel = world.kernel(random.Random(5))
    subscribe(kernel, "near", "plant/#")
    traffic = Traffic("site")
    traffic.publish(kernel, NOW + 4, "plant/t", b"before")
    kernel.run(NOW + 5)
    for name in ("r1a", "r1b", "r1c"):
        kernel.cut("site", name)
    for n in range(20):
        traffic.publish(kernel, NOW + 6 + n, "plant/t", b"%d" % n)
    newer = changed(world, world.overlay, 1, ("r1a", "r1b", "r1c", "r1d"), kernel.now, GRACE_S)
    world.overlay = newer
    kernel.add_node("r1d", world.maker("r1d", random.Random(6)), peers_of(newer, "r1d"))
    kernel.call("near", lambda node, now: node.offered(canonical(newer), now))  # type: ignore[attr-defined]
    kernel.run(NOW + 30)
    assert kernel.nodes["r1b"].overlay.open_views(1) == (newer.latest[1],)  # type: ignore[attr-defined]
    for name in ("r1a", "r1b", "r1c"):
        kernel.heal("site", name)
    trace = kernel.run(NOW + 60)
    check_safety(traffic.published, trace.delivered["near"])
    check_liveness(traffic.published, trace.delivered["near"])
