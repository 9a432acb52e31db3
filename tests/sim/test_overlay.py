"""Whole overlays under the simulator: delivery, liars, crashes, branches."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bridge.document.policy import Scope
from keys.envelope import Mode
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from tests.seldom import in_turn, slow
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

pytestmark = pytest.mark.invariant(12)


def run(world: World, seed: int, readers: list[str], count: int = 40) -> tuple[Traffic, object]:
    rng = random.Random(seed)
    kernel = world.kernel(rng)
    for reader in readers:
        subscribe(kernel, reader, "plant/#")
    traffic = Traffic("site")
    for number in range(count):
        topic = f"plant/line{number % 3}/temp"
        traffic.publish(kernel, NOW + 5 + number * 0.05, topic, b"%d" % number, qos=number % 3)
    trace = kernel.run(NOW + 60)
    return traffic, trace


def test_two_regions_deliver_everything_in_order():
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
    traffic, trace = run(world, 1, ["control"])
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    assert trace.blamed == []
    assert trace.forgotten["site"] == set(traffic.published)


def test_subscribers_on_two_branches():
    world = make_world(
        {1: 3, 2: 3, 3: 3, 4: 3}, [(1, 2), (1, 3), (3, 4)], {"site": 1, "left": 2, "right": 4, "idle": 3}
    )
    traffic, trace = run(world, 2, ["left", "right"])
    for gateway in ("left", "right"):
        check_safety(traffic.published, trace.delivered[gateway])
        check_liveness(traffic.published, trace.delivered[gateway])
    assert "idle" not in trace.delivered
    assert not trace.blamed


@pytest.mark.parametrize("n", [3, 5])
def test_one_region(n: int):
    world = make_world({1: n}, [], {"site": 1, "control": 1})
    traffic, trace = run(world, 3, ["control"])
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])


LIES = [
    {Behaviour.DROP},
    {Behaviour.CONTENT, Behaviour.SHARES},
    {Behaviour.HEADER},
    {Behaviour.LABELS},
    {Behaviour.DUPLICATE, Behaviour.REPLAY},
    {Behaviour.TOPIC},
    {Behaviour.SHARES},
]


@pytest.mark.parametrize(("liars", "lies"), in_turn(product(["r1a", "r1b", "r1c"], ["r2a", "r2b", "r2c"]), LIES))
def test_every_placement_of_one_liar_a_region(liars: tuple[str, str], lies: set[Behaviour]):
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
    world.liars = {name: frozenset(lies) for name in liars}
    traffic, trace = run(world, 4, ["control"], count=12)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), liars)


def test_a_liar_with_shares_and_content_is_named_and_nobody_else():
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
    world.liars = {"r1b": frozenset({Behaviour.SHARES, Behaviour.CONTENT})}
    traffic, trace = run(world, 5, ["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    assert trace.named_members() == {"r1b"}
    assert "r1b" in trace.suspected()


def test_liar_on_a_one_region_path_is_named():
    world = make_world({1: 3}, [], {"site": 1, "control": 1})
    world.liars = {"r1c": frozenset({Behaviour.SHARES})}
    traffic, trace = run(world, 6, ["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    assert trace.named_members() == {"r1c"}


@pytest.mark.parametrize("seed", [0, *slow(range(1, 6))])
def test_replicas_crash_and_come_back(seed: int):
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
    rng = random.Random(seed)
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "plant/#")
    traffic = Traffic("site")
    victims = [f"r{1 + rng.randrange(2)}{'abc'[rng.randrange(3)]}" for _ in range(4)]
    for number in range(200):
        traffic.publish(kernel, NOW + 5 + number * 0.1, f"plant/{number % 4}", b"%d" % number)
    when = NOW + 6
    for victim in victims:
        kernel.run(when)
        kernel.crash(victim)
        kernel.run(when + 1.5)
        kernel.restart(victim)
        when += 4
    trace = kernel.run(NOW + 80)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), ())
    assert trace.forgotten["site"] == set(traffic.published)


def test_tokens_hide_names_and_plain_scopes_stay_readable():
    scopes = [Scope("plant/#", tokens=True), Scope("open/#", Mode.PLAIN)]
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, scopes)
    rng = random.Random(9)
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    for number in range(8):
        traffic.publish(kernel, NOW + 5 + number * 0.1, f"plant/{number % 2}", b"secret")
        traffic.publish(kernel, NOW + 5 + number * 0.1, f"open/{number % 2}", b"public")
    trace = kernel.run(NOW + 30)
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])


def test_five_plain_regions_in_a_row_deliver_beside_a_sealed_scope_of_four():
    """The bound on depth is one of shares; plain publications have none."""
    scopes = [Scope("open/#", Mode.PLAIN), Scope("plant/#", regions=(2, 3, 4, 5))]
    row = [(n, n + 1) for n in range(1, 5)]
    world = make_world(dict.fromkeys(range(1, 6), 3), row, {"site": 2, "outer": 1, "control": 5}, scopes)
    kernel = world.kernel(random.Random(10))
    for reader in ("outer", "control"):
        subscribe(kernel, reader, "#")
    traffic = {"outer": Traffic("outer"), "site": Traffic("site")}
    for number in range(8):
        traffic["outer"].publish(kernel, NOW + 5 + number * 0.1, f"open/{number % 2}", b"public %d" % number)
        traffic["site"].publish(kernel, NOW + 5 + number * 0.1, f"plant/{number % 2}", b"sealed %d" % number)
    trace = kernel.run(NOW + 60)
    got = {publisher: [d for d in trace.delivered["control"] if d.publisher == publisher] for publisher in traffic}
    for publisher, made in traffic.items():
        check_safety(made.published, got[publisher])
        check_liveness(made.published, got[publisher])
    assert "outer" not in trace.delivered, "what is sealed for four regions does not enter the fifth"
    assert not trace.blamed
