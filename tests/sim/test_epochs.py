"""Whole overlays over ends of epochs, bumps and revocations: nothing lost, wrong, repeated or read by outsiders."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest

from bridge.contract.machine import Effect, Machine
from bridge.document.overlay import Overlay
from bridge.document.policy import Scope
from bridge.node import GatewayNode, ReplicaNode
from keys.envelope import KeyHeader, Mode, check_share, make_key, open_key
from keys.epochs import Calendar, KeyName, ScopeKeys
from keys.errors import BadContent, WrongEpochKey
from papers.sim.adversary import Adversary, Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.keys.helpers import secret_behind
from tests.seldom import slow
from tests.sim.test_secrecy import Recorder, pool, recorded
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(58)

FIRST = 3  # the epoch that begins at NOW
LENGTH_S = 10
CALENDAR = Calendar(int((NOW - FIRST * LENGTH_S) * 1000), LENGTH_S, ahead_s=2, grace_s=2, skew_s=1)
SCOPES = [Scope("plant/#"), Scope("open/#", Mode.PLAIN), Scope("late/#")]


def overlay_of(gateways: dict[str, int], sizes: dict[int, int] | None = None, seed: int = 1) -> World:
    sizes = sizes or {1: 3, 2: 3}
    world = make_world(sizes, [(1, 2)] if len(sizes) > 1 else [], gateways, SCOPES, seed, calendar=CALENDAR)
    world.learn(world.keys, [FIRST])
    return world


def inside(machine: Machine) -> Machine:
    while isinstance(machine, Adversary | Recorder):
        machine = machine.machine
    return machine


def keys_changed(machine: Machine, now: float) -> Sequence[Effect]:
    node = inside(machine)
    assert isinstance(node, GatewayNode)
    node.woken()
    return node.collector.keys_changed(now) + node.publisher.keys_changed(now)


def adopting(world: World, overlay: Overlay) -> Callable[[Machine, float], Sequence[Effect]]:
    secrets = world.secrets_under(overlay)

    def adopt(machine: Machine, now: float) -> Sequence[Effect]:
        node = inside(machine)
        if isinstance(node, ReplicaNode):
            return node.forwarder.adopt_overlay(overlay, now)
        assert isinstance(node, GatewayNode)
        node.woken()
        effects = node.collector.adopt_overlay(overlay, secrets, now) + node.interest.adopt_overlay(
            overlay, secrets, now
        )
        return effects + node.publisher.adopt_overlay(overlay, secrets, now)

    return adopt


def adopt_everywhere(kernel: Kernel, world: World, overlay: Overlay, rng: random.Random, within_s: float) -> None:
    """Members learn of the new version one after the other, in any order."""
    names = sorted(kernel.nodes)
    rng.shuffle(names)
    for name in names:
        kernel.run(kernel.now + within_s / len(names))
        kernel.call(name, adopting(world, overlay))


def pass_epochs(kernel: Kernel, world: World, gateways: Collection[str], epochs: Sequence[int], bump: int = 0) -> None:
    """The key service's part: everybody who shares `world.keys` has an epoch's keys before it begins."""
    for epoch in epochs:
        kernel.run(CALENDAR.fetch_from_s(epoch))
        world.learn(world.keys, [epoch], bump)
        for name in gateways:
            kernel.call(name, keys_changed)


def steady(traffic: Traffic, kernel: Kernel, until_s: float, topic: str = "plant/{}", every_s: float = 0.1) -> None:
    for number in range(int((until_s - 3) / every_s)):
        when = NOW + 3 + number * every_s
        traffic.publish(kernel, when, topic.format(number % 3), b"%d" % number, qos=number % 3)


@pytest.mark.parametrize("seed", [0, *slow([1])])
@pytest.mark.parametrize(
    "lies", [{Behaviour.SHARES, Behaviour.CONTENT}, {Behaviour.REPLAY, Behaviour.DUPLICATE}, {Behaviour.DROP}],
    ids=lambda lies: "+".join(sorted(lie.value for lie in lies)),
)  # fmt: skip
def test_epochs_pass_with_liars_and_skewed_clocks(seed: int, lies: set[Behaviour]):
    rng = random.Random(seed)
    world = overlay_of({"site": 1, "control": 2}, seed=seed)
    liars = {f"r1{rng.choice('abc')}", f"r2{rng.choice('abc')}"}
    world.liars = {name: frozenset(lies) for name in liars}
    clocks = {name: rng.uniform(-0.5, 0.5) for name in world.overlay.members}  # any two differ by skew_s at most
    kernel = world.kernel(rng, clocks=clocks)
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    steady(traffic, kernel, 35)
    pass_epochs(kernel, world, ["site", "control"], range(FIRST + 1, FIRST + 5))
    trace = kernel.run(NOW + 60)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), liars)
    assert trace.forgotten["site"] == set(traffic.published)


def test_a_scope_without_a_key_waits_in_order_and_holds_nobody_up():
    world = overlay_of({"site": 1, "control": 2})
    kernel = world.kernel(random.Random(1))
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    steady(traffic, kernel, 40)
    plain = {traffic.publish(kernel, NOW + 15 + n / 10, "open/a", b"%d" % n) for n in range(100)}
    trace = kernel.run(NOW + 29)
    got = {d.sequence: d.publication.topic for d in trace.delivered["control"]}
    times = {traffic.published[s].time_ms / 1000 for s, topic in got.items() if topic.startswith("plant/")}
    assert max(times) <= NOW + LENGTH_S + CALENDAR.grace_s, "sealed under the last key no longer than its grace"
    assert plain <= set(got)
    assert trace.figures["key_waits"] > 0
    pass_epochs(kernel, world, ["site", "control"], [FIRST + 1, FIRST + 2, FIRST + 3])
    trace = kernel.run(NOW + 60)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])


def test_an_uplink_that_was_away_for_epochs_loses_nothing():
    """What was sealed and sent into a dead link is sealed anew: its epoch is over."""
    world = overlay_of({"site": 1, "control": 2})
    kernel = world.kernel(random.Random(2))
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    steady(traffic, kernel, 40)
    kernel.run(NOW + 8)
    for peer in ("r1a", "r1b", "r1c"):
        kernel.cut("site", peer)
    pass_epochs(kernel, world, ["site", "control"], [FIRST + 1, FIRST + 2, FIRST + 3])
    for peer in ("r1a", "r1b", "r1c"):
        kernel.heal("site", peer)
    pass_epochs(kernel, world, ["site", "control"], [FIRST + 4, FIRST + 5])
    trace = kernel.run(NOW + 70)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    assert trace.forgotten["site"] == set(traffic.published)


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
def test_a_bump_in_the_middle_of_traffic_loses_nothing_for_those_who_stay(seed: int):
    rng = random.Random(seed)
    world = overlay_of({"site": 1, "control": 2, "evil": 2}, seed=seed)
    world.liars = {"r1b": frozenset({Behaviour.SHARES}), "r2c": frozenset({Behaviour.REPLAY})}
    world.own_keys["evil"] = ScopeKeys()
    world.learn(world.own_keys["evil"], [FIRST])
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "#")
    subscribe(kernel, "evil", "#")
    traffic = Traffic("site")
    steady(traffic, kernel, 20)
    kernel.run(NOW + 5)
    newer = world.revoked("evil", FIRST - 1, bump=1)
    adopt_everywhere(kernel, world, newer, rng, within_s=1.0)
    done = kernel.now
    world.learn(world.keys, [FIRST], bump=1)
    for name in ("site", "control"):
        kernel.call(name, keys_changed)
    pass_epochs(kernel, world, ["site", "control"], [FIRST + 1, FIRST + 2], bump=1)
    trace = kernel.run(NOW + 50)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), world.liars)
    late = [d for d in trace.delivered["evil"] if d.publication.time_ms / 1000 > done + 0.5]
    assert trace.delivered["evil"]
    assert not late


def test_a_publisher_whose_grant_ends_is_heard_to_the_end_and_no_longer():
    world = overlay_of({"site": 1, "control": 2})
    rng = random.Random(3)
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    steady(traffic, kernel, 20)
    kernel.run(NOW + 5)
    adopt_everywhere(kernel, world, world.revoked("site", FIRST), rng, within_s=1.0)
    pass_epochs(kernel, world, ["site", "control"], [FIRST + 1, FIRST + 2])
    trace = kernel.run(NOW + 40)
    delivered = trace.delivered["control"]
    check_safety(traffic.published, delivered)
    before = {s for s, p in traffic.published.items() if p.time_ms / 1000 < NOW + LENGTH_S - 0.001}
    check_liveness(before, delivered)
    assert {d.sequence for d in delivered} <= {s for s, p in traffic.published.items() if p.time_ms / 1000 < NOW + 10}
    assert trace.figures["not_authorised"] > 0
    assert not trace.blamed, "an honest publisher does not try"


# -------------------------------------------------------------------------------------------- secrecy


def secret_of(world: World, header: KeyHeader, wires: list[object]) -> bytes:
    hops = world.overlay.hops_between(1, 2)
    shares = [s for _, found in [pool(wires)[header.key_id]] for s in found.values() if len(s.label) == 2]  # type: ignore[arg-type]
    return secret_behind(shares, hops, lambda p, v: check_share(header, p, v))


def assert_closed(world: World, header: KeyHeader, secret: bytes, epoch_key: bytes | None) -> None:
    """The key does not open, not even for somebody who ignores its check value."""
    with pytest.raises(WrongEpochKey):
        open_key(header, secret, epoch_key)
    name = KeyName("x", 0, 0)
    alike, _, _ = make_key(world.identities["site"], name, header.hops, 1, 1, epoch_key, random.Random(0).randbytes)
    with pytest.raises(BadContent):
        open_key(replace(header, kcv=alike.kcv), secret, epoch_key)


def test_a_revoked_reader_that_taps_every_wire_opens_nothing_of_the_new_epoch():
    """It is given everything on every link, its old keys, and even every recombined secret. Neither do brokers read:
    a quorum of replicas recombines the secrets, but has no epoch key."""
    world = overlay_of({"site": 1, "control": 2, "evil": 2})
    world.own_keys["evil"] = ScopeKeys()
    world.learn(world.own_keys["evil"], [FIRST])
    rng = random.Random(4)
    kernel, recorders = recorded(world, rng)
    subscribe(kernel, "control", "#")
    subscribe(kernel, "evil", "#")
    traffic = Traffic("site")
    steady(traffic, kernel, 25)
    kernel.run(NOW + 5)
    adopt_everywhere(kernel, world, world.revoked("evil", FIRST), rng, within_s=0.5)
    pass_epochs(kernel, world, ["site", "control"], [FIRST + 1, FIRST + 2])
    trace = kernel.run(NOW + 40)
    check_liveness(traffic.published, trace.delivered["control"])
    assert max(d.publication.time_ms / 1000 for d in trace.delivered["evil"]) < NOW + LENGTH_S
    wires = [wire for recorder in recorders.values() for wire in recorder.wires]
    opened, closed = 0, 0
    for header, _ in pool(wires).values():
        secret = secret_of(world, header, list(wires))
        assert_closed(world, header, secret, None)
        for name, key in world.own_keys["evil"]:
            if name == header.epoch_key:
                open_key(header, secret, key)
                opened += 1
            else:
                assert_closed(world, header, secret, key)
                closed += header.epoch > FIRST
    assert opened, "its own epoch it could read"
    assert closed


# ------------------------------------------------------------------------------------------- retained


def test_retained_publications_are_sealed_anew_for_those_who_join_later_and_told_once():
    world = overlay_of({"site": 1, "control": 2, "late": 2})
    kernel = world.kernel(random.Random(5))
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    traffic.publish(kernel, NOW + 4, "plant/setpoint", b"21", qos=1, retain=True)
    traffic.publish(kernel, NOW + 5, "plant/gone", b"1", qos=1, retain=True)
    traffic.publish(kernel, NOW + 6, "plant/gone", b"", qos=1, retain=True)
    for epoch in range(FIRST + 1, FIRST + 4):
        pass_epochs(kernel, world, ["site", "control", "late"], [epoch])
        kernel.run(CALENDAR.start_s(epoch) + 1)
    subscribe(kernel, "late", "#", when=kernel.now + 5)  # the first two epochs are dead by now
    trace = kernel.run(kernel.now + 8)
    assert [d.publication.payload for d in trace.delivered["control"]] == [b"21", b"1", b""]
    assert [(d.publication.topic, d.publication.payload) for d in trace.delivered["late"]] == [
        ("plant/setpoint", b"21")
    ]
    assert trace.figures["retained_resealed"] == 4, "the value each time, the tombstone as long as its epoch lives"


def test_a_retained_value_that_somebody_else_replaced_is_not_sealed_anew():
    world = overlay_of({"site": 1, "control": 2})
    kernel = world.kernel(random.Random(6))
    Traffic("site").publish(kernel, NOW + 4, "plant/setpoint", b"21", qos=1, retain=True)
    kernel.run(NOW + 5)
    node = inside(kernel.nodes["site"])
    assert isinstance(node, GatewayNode)
    node.publisher.overtaken("plant/setpoint", int((NOW + 5) * 1000))
    pass_epochs(kernel, world, ["site", "control"], [FIRST + 1])
    trace = kernel.run(NOW + 15)
    assert "retained_resealed" not in trace.figures
