"""Replicas that are cut off around the ends of epochs, beside a liar: nothing is lost, refused or misplaced."""

from __future__ import annotations

import random

import pytest

from bridge.contract.budgets import RESEALED_MAX
from bridge.document.policy import Refresh, Scope
from keys.envelope import Mode
from keys.epochs import Calendar
from papers.sim.adversary import Behaviour
from papers.sim.checkers import check_blame, check_liveness, check_safety
from papers.sim.kernel import EventTrace, Kernel
from tests.seldom import slow
from tests.sim.test_epochs import keys_changed
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

FIRST = 3  # the epoch at the beginning


def made(calendar: Calendar, scopes: list[Scope], sizes: dict[int, int], liars: tuple[str, ...], seed: int) -> World:
    ways = [(1, 2)] if len(sizes) > 1 else []
    world = make_world(sizes, ways, {"site": 1, "control": max(sizes)}, scopes, seed, calendar=calendar)
    world.learn(world.keys, [FIRST])
    world.liars = {name: frozenset({Behaviour.DROP}) for name in liars}
    return world


def calendar(length_s: int, grace_s: int) -> Calendar:
    return Calendar(int((NOW - FIRST * length_s) * 1000), length_s, ahead_s=2, grace_s=grace_s, skew_s=1)


def learn(kernel: Kernel, world: World, epoch: int) -> None:
    world.learn(world.keys, [epoch])
    for name in ("site", "control"):
        kernel.call(name, keys_changed)


def cut(kernel: Kernel, since: float, until: float, peer: str = "r1c") -> None:
    kernel.run(since)
    kernel.cut("site", peer)
    kernel.run(until)
    kernel.heal("site", peer)


def check(world: World, traffic: Traffic, trace: EventTrace) -> None:
    check_safety(traffic.published, trace.delivered["control"])
    check_liveness(traffic.published, trace.delivered["control"])
    check_blame(trace.named_members(), world.liars)


@pytest.mark.attack(134)
@pytest.mark.parametrize("away_s", [0.3, 0.8])
def test_a_cut_shorter_than_the_grace_loses_nothing_though_the_key_came_late(away_s: float):
    """The key service was out of reach until the grace was over: the last ones are of an epoch that had ended."""
    world = made(calendar(10, 2), [Scope("plant/#")], {1: 3}, ("r1b",), 1)
    kernel = world.kernel(random.Random(0))
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    for n in range(120):
        traffic.publish(kernel, NOW + 5 + n * 0.1, f"plant/{n % 3}", b"%d" % n)
    cut(kernel, NOW + 12.1 - away_s, NOW + 12.1)
    for at, epoch in ((12.5, FIRST + 1), (18, FIRST + 2)):
        kernel.run(NOW + at)
        learn(kernel, world, epoch)
    check(world, traffic, kernel.run(NOW + 40))


@pytest.mark.attack(134)
@pytest.mark.parametrize("grace_s", [0, 1])
def test_a_cut_of_a_second_loses_nothing_where_there_is_no_grace(grace_s: int):
    world = made(calendar(10, grace_s), [Scope("plant/#", refresh=Refresh(messages=3))], {1: 3}, ("r1b",), 1)
    kernel = world.kernel(random.Random(3))
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    for n in range(80):
        traffic.publish(kernel, NOW + 5 + n * 0.1, f"plant/{n % 3}", b"%d" % n)
    kernel.run(NOW + 8)
    learn(kernel, world, FIRST + 1)
    cut(kernel, NOW + 9.5, NOW + 10.5)
    kernel.run(NOW + 18)
    learn(kernel, world, FIRST + 2)
    check(world, traffic, kernel.run(NOW + 40))


def test_a_late_joiner_gets_what_was_retained_long_ago_though_one_replica_is_away():
    """Behind something that one lacked it was sealed anew in its chain: replicas took it for a repetition."""
    world = made(calendar(40, 4), [Scope("plant/#")], {1: 3}, (), 1)
    kernel = world.kernel(random.Random(0))
    traffic = Traffic("site")
    kernel.run(NOW + 3)
    kernel.cut("site", "r1c")
    traffic.publish(kernel, NOW + 4, "plant/t", b"ordinary")
    traffic.publish(kernel, NOW + 4.1, "plant/value", b"value", retain=True)
    for n in range(RESEALED_MAX + 100):
        traffic.publish(kernel, NOW + 5 + n * 0.01, "plant/t", b"%d" % n)
    kernel.run(NOW + 36)
    learn(kernel, world, FIRST + 1)
    subscribe(kernel, "control", "plant/#", NOW + 66)
    trace = kernel.run(NOW + 75)
    assert b"value" in [delivery.publication.payload for delivery in trace.delivered["control"]]


@pytest.mark.parametrize("sizes", [*slow([{1: 3}]), {1: 3, 2: 3}], ids=["one region", "two regions"])
@pytest.mark.parametrize("mode", [Mode.COPIES, *slow([Mode.ONE, Mode.BLOCKS])], ids=lambda mode: mode.name)
def test_no_replica_refuses_anything_after_a_cut_of_longer_than_the_grace(mode: Mode, sizes: dict[int, int]):
    world = made(calendar(20, 2), [Scope("plant/#", mode)], sizes, (), 1)
    kernel = world.kernel(random.Random(4))
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    kernel.run(NOW + 8)
    kernel.cut("site", "r1c")
    for n in range(300):
        traffic.publish(kernel, NOW + 8 + n * 0.03, f"plant/{n % 3}", b"%d" % n + bytes(2000))
    kernel.run(NOW + 18)
    learn(kernel, world, FIRST + 1)
    kernel.run(NOW + 25)
    for n in range(40):
        traffic.publish(kernel, NOW + 25.5 + n * 0.1, f"plant/{n % 3}", b"new" + bytes(2000))
    kernel.heal("site", "r1c")
    trace = kernel.run(NOW + 37)
    assert not [name for name in trace.figures if "refused" in name or "throttled" in name]
    check(world, traffic, trace)


@pytest.mark.attack(134)
@pytest.mark.parametrize("seed", [0, 3, *slow([1, 2, *range(4, 8), *range(15, 64)])])
def test_cuts_within_the_grace_lose_and_misplace_nothing(seed: int):
    """Any mode, one or two regions, keys beside or on publications, retained and in clear, one liar in each region."""
    rng = random.Random(seed)
    mode = [Mode.COPIES, Mode.ONE, Mode.BLOCKS, Mode.AUTO][seed % 4]
    far = rng.random() < 0.5
    refresh = Refresh(messages=rng.choice([3, 9, 100]))
    scopes = [Scope("plant/#", mode, refresh=refresh, keys_on_topic=seed % 2 == 0), Scope("open/#", Mode.PLAIN)]
    sizes, liars = ({1: 3, 2: 3}, ("r1b", "r2a")) if far else ({1: 3}, ("r1b",))
    world = made(calendar(20, 6), scopes, sizes, liars, seed)
    kernel = world.kernel(rng)
    subscribe(kernel, "control", "#")
    traffic = Traffic("site")
    for n in range(400):
        qos, retain = 1 + rng.randrange(2), rng.random() < 0.1
        topic = f"open/{n % 2}" if n % 7 == 0 else f"plant/{3 if retain else n % 3}"
        content = b"%d" % n + bytes(rng.choice([0, 1500]))
        traffic.publish(kernel, NOW + 5 + n * 0.1, topic, content, qos=qos, retain=retain)
    for epoch in (1, 2):
        end = NOW + 20 * epoch
        kernel.run(end - 2)
        learn(kernel, world, FIRST + epoch)
        for _ in range(rng.randrange(1, 3)):
            since = max(kernel.now, end - 1) + rng.uniform(0, 1.2)
            cut(kernel, since, since + rng.uniform(0.1, 1.0))
            kernel.run(kernel.now + 1.0)
    check(world, traffic, kernel.run(NOW + 58))
