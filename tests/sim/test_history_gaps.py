"""Gaps older than the memory of replicas are read again from histories, in order and once.

Source: docs/protocol-options.md §12.4.
"""

from __future__ import annotations

import random

import pytest

from bridge.document import Scope
from bridge.reader.gaps import GAP_S
from keys.envelope import Mode
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import Kernel
from tests.sim.test_history import KEPT, LIES, a_world, lying
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

REPLICAS = ("r2a", "r2b", "r2c")


def publish(traffic: Traffic, kernel: Kernel, at: float, count: int, rng: random.Random) -> None:
    for n in range(count):
        payload = rng.randbytes(rng.choice((3, 40, 600, 6000)))
        traffic.publish(kernel, at + n * 0.2, f"plant/{n % 3}", payload, qos=1 + n % 2)


def lose_a_while(kernel: Kernel, traffic: Traffic, rng: random.Random, away_s: float) -> None:
    """All links of the reader are down while publications pass, and nothing of that is sent later."""
    publish(traffic, kernel, NOW + 4, 10, rng)
    kernel.run(NOW + 20)
    for replica in REPLICAS:
        kernel.cut("desk", replica)
    publish(traffic, kernel, NOW + 21, 10, rng)
    kernel.run(NOW + 30 + away_s)
    for replica in REPLICAS:
        kernel.heal("desk", replica)
    publish(traffic, kernel, NOW + 40 + away_s, 10, rng)
    kernel.run(NOW + 60 + away_s + GAP_S + 20)


@pytest.mark.parametrize("lie", LIES)
def test_what_all_replicas_forgot_comes_from_their_histories(lie: str) -> None:
    rng = random.Random(lie)
    world = a_world(31)
    kernel = lying(world, rng, {"r2b": lie})
    subscribe(kernel, "desk", "plant/#")
    traffic = Traffic("site")
    lose_a_while(kernel, traffic, rng, 300)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)
    assert not any(each.late for each in delivered)
    assert kernel.trace.figures["gaps_read"] == 1
    assert "holes" not in kernel.trace.figures
    check_blame(kernel.trace.named_members(), {"r2b"})


@pytest.mark.parametrize("mode", [Mode.PLAIN, Mode.BLOCKS])
def test_whatever_the_mode(mode: Mode) -> None:
    rng = random.Random(str(mode))
    world = a_world(32, mode)
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    traffic = Traffic("site")
    lose_a_while(kernel, traffic, rng, 100)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)


def test_without_a_history_the_gap_stays_and_nothing_is_asked() -> None:
    rng = random.Random(3)
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "desk": 2}, [Scope("plant/#")])
    kernel = world.kernel(rng)
    subscribe(kernel, "desk", "plant/#")
    traffic = Traffic("site")
    lose_a_while(kernel, traffic, rng, 300)
    assert len(kernel.trace.delivered["desk"]) == 20
    assert "gaps_read" not in kernel.trace.figures
    assert kernel.trace.figures["holes"]


@pytest.mark.attack(175)
def test_other_publishers_do_not_wait_for_the_gap_of_one() -> None:
    rng = random.Random(4)
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "desk": 2, "other": 1}, [Scope("plant/#", history=KEPT)])
    kernel = lying(world, rng, dict.fromkeys(REPLICAS[:1], "silent"))
    subscribe(kernel, "desk", "plant/#")
    traffic, other = Traffic("site"), Traffic("other")
    for at in range(5, 420):
        other.publish(kernel, NOW + at, "plant/x", b"on time")
    lose_a_while(kernel, traffic, rng, 0)
    at = [
        (when, each)
        for when, each in zip(kernel.trace.delivered_at["desk"], kernel.trace.delivered["desk"], strict=True)
        if each.publisher == "other" and when > NOW + 45
    ]
    assert at
    assert max(when - NOW - each.sequence - 4 for when, each in at) < 1.0


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))])
def test_random_outages_leave_no_gap(seed: int) -> None:
    """Cuts of the reader from some or all replicas, restarts of replicas, and one liar, drawn from a seed."""
    rng = random.Random(seed)
    world = a_world(seed)
    liar = rng.choice(REPLICAS)
    kernel = lying(world, rng, {liar: rng.choice(LIES)})
    subscribe(kernel, "desk", "plant/#")
    traffic = Traffic("site")
    for at in sorted(rng.uniform(NOW + 4, NOW + 1_500) for _ in range(75)):
        traffic.publish(kernel, at, f"plant/{rng.randrange(3)}", rng.randbytes(30), qos=rng.choice((1, 2)))
    kernel.run(NOW + 20)
    while kernel.now < NOW + 1_200:
        for replica in rng.sample(REPLICAS, rng.choice((1, 3, 3))):
            kernel.cut("desk", replica)
        kernel.run(kernel.now + rng.uniform(1, 200))
        for replica in REPLICAS:
            kernel.heal("desk", replica)
        kernel.run(kernel.now + rng.uniform(30, 150))
    for at in range(3):
        traffic.publish(kernel, NOW + 1_600 + at, f"plant/{at}", b"the last")
    kernel.run(NOW + 1_800)
    delivered = kernel.trace.delivered["desk"]
    check_safety(traffic.published, delivered)
    check_liveness(traffic.published, delivered)
    check_blame(kernel.trace.named_members(), {liar})


def test_a_reader_that_dies_while_it_reads_a_gap_repeats_nothing() -> None:
    from tests.sim.test_history import come_back, living

    rng = random.Random(6)
    world: World = a_world(34)
    kernel, rows = living(world, rng, {"r2a": "slow"})
    subscribe(kernel, "desk", "plant/#")
    traffic = Traffic("site")
    publish(traffic, kernel, NOW + 4, 10, rng)
    kernel.run(NOW + 20)
    for replica in REPLICAS:
        kernel.cut("desk", replica)
    publish(traffic, kernel, NOW + 21, 40, rng)
    kernel.run(NOW + 200)
    for replica in REPLICAS:
        kernel.heal("desk", replica)
    publish(traffic, kernel, NOW + 210, 10, rng)
    kernel.run(NOW + 231)
    kernel.crash("desk")
    kernel.run(NOW + 240)
    come_back(kernel, rows)
    publish(traffic, kernel, NOW + 250, 3, rng)
    kernel.run(NOW + 250 + GAP_S + 60)
    check_safety(traffic.published, kernel.trace.delivered["desk"])
    check_liveness(traffic.published, kernel.trace.delivered["desk"])
