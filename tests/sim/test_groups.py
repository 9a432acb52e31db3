"""Shared groups over several gateways under the simulator: what a group's members get, over all gateways together."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from bridge.base.topics import matches
from bridge.contract.machine import (
    Committed,
    Deliver,
    DeliverShared,
    Effect,
    Event,
    GroupJoined,
    GroupLeft,
    Machine,
    Subscribed,
    Unsubscribed,
)
from bridge.document.policy import Scope
from papers.sim.adversary import Behaviour
from papers.sim.kernel import Kernel
from tests.seldom import slow
from tests.sim.world import NOW, Traffic, World, make_world

pytestmark = pytest.mark.invariant(35, 36)

FILTER = "plant/#"
GROUP = ("workers", FILTER)


class Members:
    """A gateway with the exchange's part of it: what its local members of the group get."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name, self.machine = name, machine
        self.present = False
        self.got: list[tuple[str, int]] = []  # (publisher, sequence)
        self.ordinary: list[tuple[str, int]] = []

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        match event:
            case GroupJoined():
                self.present = True
            case GroupLeft():
                self.present = False
            case Committed(entries):
                self.own = [(self.name, s) for s, _, p in entries if matches(FILTER, p.topic)]
                self.got += self.own if self.present else []
        effects = self.machine.handle(event, now)
        for effect in effects:
            match effect:
                case Deliver(publisher, sequence, groups_lost=lost):
                    self.ordinary.append((publisher, sequence))
                    if self.present and GROUP not in lost:
                        self.got.append((publisher, sequence))
                case DeliverShared(group, topic_filter, publication) if self.present:
                    assert (group, topic_filter) == GROUP
                    self.got.append((publication.payload.decode().split()[0], int(publication.payload.split()[1])))
        return effects


def joins(kernel: Kernel, when: float, gateway: str) -> None:
    kernel.plan_event(when, gateway, Subscribed(FILTER))
    kernel.plan_event(when, gateway, GroupJoined(*GROUP))


def leaves(kernel: Kernel, when: float, gateway: str) -> None:
    kernel.plan_event(when, gateway, GroupLeft(*GROUP))
    kernel.plan_event(when, gateway, Unsubscribed(FILTER))


def run_of(world: World, seed: int, clocks: dict[str, float] | None = None) -> tuple[Kernel, dict[str, Members]]:
    kernel = world.kernel(random.Random(seed), clocks=clocks)
    members = {}
    for name in ("one", "two", "three", "site"):
        members[name] = kernel.nodes[name] = Members(name, kernel.nodes[name])  # type: ignore[assignment]
    return kernel, members


def world_of(tokens: bool = True, liars: dict[str, frozenset[Behaviour]] | None = None) -> World:
    gateways = {"one": 1, "two": 2, "three": 2, "site": 1}
    world = make_world({1: 3, 2: 3}, [(1, 2)], gateways, [Scope(FILTER, tokens=tokens)])
    world.liars.update(liars or {})
    return world


def publish(kernel: Kernel, gateway: str, start: float, end: float, every: float = 0.08) -> Traffic:
    traffic = Traffic(gateway)
    when = start
    while when < end:
        number = traffic._next
        traffic.publish(kernel, when, f"plant/line{number % 5}", b"%s %d" % (gateway.encode(), number))
        when += every
    return traffic


def counts(members: dict[str, Members]) -> Counter[tuple[str, int]]:
    return Counter(entry for one in members.values() for entry in one.got)


def missing_and_repeated(
    members: dict[str, Members], published: Sequence[Traffic]
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    got = counts(members)
    wanted = [(traffic.gateway, sequence) for traffic in published for sequence in traffic.published]
    return [w for w in wanted if not got[w]], [w for w in got if got[w] > 1]


LIARS = {"r1a": frozenset({Behaviour.DROP, Behaviour.REPLAY}), "r2c": frozenset({Behaviour.SILENT})}


@pytest.mark.parametrize("seed", [0, *slow([1, 2])])
@pytest.mark.parametrize("liars", [{}, LIARS], ids=["honest", "a liar in each region"])
def test_each_publication_goes_to_one_gateway_of_the_group(seed: int, liars: dict[str, frozenset[Behaviour]]):
    kernel, members = run_of(world_of(liars=liars), seed)
    for name in ("one", "two", "three"):
        joins(kernel, NOW + 2, name)
    site = publish(kernel, "site", NOW + 8, NOW + 16)
    two = publish(kernel, "two", NOW + 8, NOW + 12)
    kernel.run(NOW + 60)
    assert missing_and_repeated(members, [site, two]) == ([], [])
    shares = Counter({name: sum(p == "site" for p, _ in one.got) for name, one in members.items()})
    assert all(shares[name] > 20 for name in ("one", "two", "three")), shares  # of 100, evenly
    assert {(p, s) for p, s in members["two"].got if p == "two"} == {("two", s) for s in two.published}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_gateways_that_join_and_leave_lose_nothing(seed: int):
    """Under load from gateways with and without members; what is on its way when one leaves may come twice."""
    kernel, members = run_of(world_of(), seed)
    joins(kernel, NOW + 2, "one")
    site, two = publish(kernel, "site", NOW + 8, NOW + 40), publish(kernel, "two", NOW + 8, NOW + 40)
    joins(kernel, NOW + 12, "two")
    joins(kernel, NOW + 14, "three")
    leaves(kernel, NOW + 22, "three")
    leaves(kernel, NOW + 27, "two")
    joins(kernel, NOW + 28, "two")
    leaves(kernel, NOW + 36, "one")
    kernel.run(NOW + 100)
    missing, repeated = missing_and_repeated(members, [site, two])
    assert missing == []
    assert len(repeated) <= 6, repeated  # what was on its way at one of three moments
    assert all(one.got for name, one in members.items() if name != "site")


def test_the_only_gateway_serves_its_group_from_the_first_moment():
    kernel, members = run_of(world_of(), 1)
    kernel.plan_event(NOW + 2, "one", Subscribed(FILTER))
    site = publish(kernel, "site", NOW + 5, NOW + 8)
    kernel.plan_event(NOW + 4.9, "one", GroupJoined(*GROUP))
    kernel.run(NOW + 30)
    assert missing_and_repeated(members, [site]) == ([], [])


@pytest.mark.slow
def test_clocks_that_differ_change_who_serves_and_nothing_else():
    kernel, members = run_of(world_of(), 5, {"one": 90.0, "two": -90.0, "three": 1.0})
    for name in ("one", "two", "three"):
        joins(kernel, NOW + 2, name)
    site = publish(kernel, "site", NOW + 8, NOW + 30, 0.05)
    kernel.run(NOW + 90)
    assert missing_and_repeated(members, [site]) == ([], [])


def test_a_gateway_that_was_cut_off_serves_its_own_devices_and_nobody_does_so_again():
    """It works on without the overlay; what it stored meanwhile reaches the others, but not their members."""
    kernel, members = run_of(world_of(), 3)
    for name in ("one", "two"):
        joins(kernel, NOW + 2, name)
    kernel.run(NOW + 8)
    for replica in ("r1a", "r1b", "r1c"):
        kernel.cut("one", replica)
    own = publish(kernel, "one", NOW + 9, NOW + 300, 1.0)
    site = publish(kernel, "site", NOW + 100, NOW + 120)  # the lease of `one` has run out
    kernel.run(NOW + 301)
    for replica in ("r1a", "r1b", "r1c"):
        kernel.heal("one", replica)
    later = Traffic("site")
    later._next = 10_000
    for number in range(50):
        later.publish(kernel, NOW + 310 + number * 0.1, "plant/a", b"site %d" % (10_000 + number))
    kernel.run(NOW + 400)
    assert set(members["two"].ordinary) >= {("one", sequence) for sequence in own.published}
    assert missing_and_repeated(members, [own, site, later]) == ([], [])
    assert {p for p, s in members["one"].got if s >= 10_000} == {"site"}, "it takes part again"


@pytest.mark.parametrize("back", [True, *slow([False])], ids=["with its members", "without"])
def test_a_gateway_that_was_killed_and_comes_back(back: bool):
    """Its lease of before still explains who serves what; without members it is taken back."""
    kernel, members = run_of(world_of(), 4)
    for name in ("one", "two"):
        joins(kernel, NOW + 2, name)
    kernel.run(NOW + 10)
    kernel.crash("one")
    kernel.run(NOW + 12)
    kernel.restart("one")
    members["one"].machine = kernel.nodes["one"]
    kernel.nodes["one"] = members["one"]  # type: ignore[assignment]
    members["one"].present = False
    if back:
        joins(kernel, NOW + 12, "one")
    site = publish(kernel, "site", NOW + 14, NOW + 30)
    kernel.run(NOW + 90)
    assert missing_and_repeated(members, [site]) == ([], [])
    assert any(publisher == "site" for publisher, _ in members["one"].got) is back
