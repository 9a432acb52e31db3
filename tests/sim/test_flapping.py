"""Links that flap, then fail: what replicas and gateways tell again may be postponed, and is never forgotten."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bridge.document.policy import ENDLESS_EPOCH, Scope
from keys.envelope import Mode
from papers.sim.kernel import EventTrace
from tests.sim.test_stragglers import FIRST, calendar, learn
from tests.sim.world import NOW, Traffic, make_world, subscribe

REGION_1, REGION_2 = ("r1a", "r1b", "r1c"), ("r2a", "r2b", "r2c")
EPOCH_S = 30


class Going:
    """A world that goes on; with a key service both gateways get the key of each epoch two seconds before it begins."""

    def __init__(self, sizes: dict[int, int], edges: list[tuple[int, int]], mode: Mode, has_service: bool) -> None:
        calendar_ = calendar(EPOCH_S, 10) if has_service else ENDLESS_EPOCH
        gateways = {"site": 1, "control": max(sizes)}
        self.world = make_world(sizes, edges, gateways, [Scope("plant/#", mode)], calendar=calendar_)
        self.epoch = FIRST if has_service else None
        if has_service:
            self.world.learn(self.world.keys, [FIRST])
        self.kernel = self.world.kernel(random.Random(5))

    def run(self, until: float) -> EventTrace:
        while self.epoch is not None and (at := NOW + (self.epoch + 1 - FIRST) * EPOCH_S - 2) <= until:
            self.kernel.run(max(at, self.kernel.now))
            self.epoch += 1
            learn(self.kernel, self.world, self.epoch)
        return self.kernel.run(until)


@pytest.mark.attack(139)
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS])
@pytest.mark.parametrize(("cut_s", "has_service"), [(5.0, False), (9.0, False), (25.0, False), (9.0, True)])
def test_links_between_regions_that_flap_and_are_cut_lose_nothing(mode: Mode, cut_s: float, has_service: bool):
    """Attack: the network flaps all links between two regions, which uses up what may be told again at once, and cuts
    them for less than `RECENT_S`."""
    going, pairs = Going({1: 3, 2: 3}, [(1, 2)], mode, has_service), list(product(REGION_1, REGION_2))
    kernel, traffic = going.kernel, Traffic("site")
    subscribe(kernel, "control", "plant/#")
    traffic.publish(kernel, NOW + 5, "plant/door", b"closed")
    at = NOW + 8
    going.run(at)
    for _ in range(12):
        for pair in pairs:
            kernel.cut(*pair)
        going.run(at := at + 0.1)
        for pair in pairs:
            kernel.heal(*pair)
        going.run(at := at + 1.1)
    for pair in pairs:
        kernel.cut(*pair)
    for n in range(5):
        traffic.publish(kernel, at + 0.5 + 0.1 * n, "plant/door", b"OPEN %d" % n)
    going.run(at := at + cut_s)
    for pair in pairs:
        kernel.heal(*pair)
    trace = going.run(at + 200)
    assert {delivered.sequence for delivered in trace.delivered["control"]} == set(traffic.published)


@pytest.mark.attack(139)
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS])
@pytest.mark.parametrize(("regions", "has_service"), [(1, False), (2, False), (1, True), (2, True)])
def test_replicas_that_restart_after_a_gateways_links_flapped_hear_what_it_retains(
    regions: int, has_service: bool, mode: Mode
):
    sizes, edges = dict.fromkeys(range(1, regions + 1), 3), [(1, 2)] * (regions - 1)
    going = Going(sizes, edges, mode, has_service)
    kernel, traffic = going.kernel, Traffic("site")
    for n in range(10):
        traffic.publish(kernel, NOW + 5 + n * 0.1, f"plant/{n}", b"value", retain=True)
    at = NOW + 10
    going.run(at)
    for _ in range(10):
        for name in REGION_1:
            kernel.cut("site", name)
        going.run(at := at + 0.1)
        for name in REGION_1:
            kernel.heal("site", name)
        going.run(at := at + 1.2)
    going.run(at := at + 5)
    for name in (*REGION_1, *REGION_2)[: 3 * regions]:
        kernel.crash(name)
        going.run(at := at + 2)
        kernel.restart(name)
        going.run(at := at + 8)
    subscribe(kernel, "control", "plant/#", at + 1)
    trace = going.run(at + 120)
    assert len({delivered.sequence for delivered in trace.delivered["control"]}) == 10
