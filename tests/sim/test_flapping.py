"""Links that flap, then fail: what replicas and gateways tell again may be postponed, and is never forgotten."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bridge.document.policy import Scope
from keys.envelope import Mode
from tests.sim.world import NOW, Traffic, make_world, subscribe

REGION_1, REGION_2 = ("r1a", "r1b", "r1c"), ("r2a", "r2b", "r2c")


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS])
@pytest.mark.parametrize("cut_s", [5.0, 9.0, 25.0])
def test_links_between_regions_that_flap_and_are_cut_lose_nothing(mode: Mode, cut_s: float):
    """Attack: the network flaps all links between two regions, which uses up what may be told again at once, and cuts
    them for less than `RECENT_S`."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, [Scope("plant/#", mode)])
    kernel, traffic, pairs = world.kernel(random.Random(5)), Traffic("site"), list(product(REGION_1, REGION_2))
    subscribe(kernel, "control", "plant/#")
    traffic.publish(kernel, NOW + 5, "plant/door", b"closed")
    at = NOW + 8
    kernel.run(at)
    for _ in range(12):
        for pair in pairs:
            kernel.cut(*pair)
        kernel.run(at := at + 0.1)
        for pair in pairs:
            kernel.heal(*pair)
        kernel.run(at := at + 1.1)
    for pair in pairs:
        kernel.cut(*pair)
    for n in range(5):
        traffic.publish(kernel, at + 0.5 + 0.1 * n, "plant/door", b"OPEN %d" % n)
    kernel.run(at := at + cut_s)
    for pair in pairs:
        kernel.heal(*pair)
    trace = kernel.run(at + 200)
    assert {delivered.sequence for delivered in trace.delivered["control"]} == set(traffic.published)


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS])
@pytest.mark.parametrize("regions", [1, 2])
def test_replicas_that_restart_after_a_gateways_links_flapped_hear_what_it_retains(regions: int, mode: Mode):
    sizes, edges = dict.fromkeys(range(1, regions + 1), 3), [(1, 2)] * (regions - 1)
    world = make_world(sizes, edges, {"site": 1, "control": regions}, [Scope("plant/#", mode)])
    kernel, traffic = world.kernel(random.Random(5)), Traffic("site")
    for n in range(10):
        traffic.publish(kernel, NOW + 5 + n * 0.1, f"plant/{n}", b"value", retain=True)
    at = NOW + 10
    kernel.run(at)
    for _ in range(10):
        for name in REGION_1:
            kernel.cut("site", name)
        kernel.run(at := at + 0.1)
        for name in REGION_1:
            kernel.heal("site", name)
        kernel.run(at := at + 1.2)
    kernel.run(at := at + 5)
    for name in (*REGION_1, *REGION_2)[: 3 * regions]:
        kernel.crash(name)
        kernel.run(at := at + 2)
        kernel.restart(name)
        kernel.run(at := at + 8)
    subscribe(kernel, "control", "plant/#", at + 1)
    trace = kernel.run(at + 120)
    assert len({delivered.sequence for delivered in trace.delivered["control"]}) == 10
