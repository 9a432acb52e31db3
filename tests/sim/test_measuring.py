"""Replicas measure while publications flow: what regions say, with liars among them, and links that could be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bridge.contract import Effect, Event, LinkDown, Send
from bridge.document.organise import Organising
from bridge.measuring import SUMMARY_TOPIC, InterestSummary, RegionCosts, ReplicaSummary, decode_said
from bridge.node import ReplicaNode
from keys.identity import Role
from papers.sim.kernel import Kernel
from tests.sim.changing import regrown
from tests.sim.test_trees import PLAIN, RING, SEALED, judge, load, ring, tell, without
from tests.sim.world import NOW, World

ORGANISING = Organising(links=RING, interval_s=10)
END = NOW + 45
RATE = 5


def measured(liars: Sequence[str] = (), seed: int = 1, scope=PLAIN) -> tuple[World, Kernel, dict]:  # type: ignore[no-untyped-def, type-arg]
    world = ring(scope, seed)
    world.overlay = world.with_policy(organising=ORGANISING)
    kernel = world.kernel(random.Random(seed))
    for name in liars:
        kernel.nodes[name] = Liar(kernel.nodes[name], world, name)  # type: ignore[arg-type]
    kernel.start()
    traffic = load(kernel, world, 36, RATE)
    return world, kernel, traffic


class Liar:
    """Says of every figure what no honest replica would, and signs it."""

    def __init__(self, node: ReplicaNode, world: World, name: str) -> None:
        self.node, self._identity = node, world.identities[name]
        self._name = name

    def __getattr__(self, name: str) -> object:
        return getattr(self.node, name)

    def handle(self, event: Event, now: float) -> list[Effect]:
        return [self._lie(effect) for effect in self.node.handle(event, now)]

    def _lie(self, effect: Effect) -> Effect:
        if not isinstance(effect, Send) or effect.wire.topic != SUMMARY_TOPIC:
            return effect
        said = decode_said(effect.wire.payload)
        if said.member != self._name:
            return effect
        frame = self._lied(said).encode()
        return Send(effect.peer, replace(effect.wire, payload=frame), effect.ticket)

    def _lied(self, said: ReplicaSummary | InterestSummary) -> ReplicaSummary | InterestSummary:
        if isinstance(said, InterestSummary):
            return replace(said, filter=b"\xff" * 12_500).signed(self._identity)
        links = tuple((region, 4_000_000_000) for region, _ in said.links)
        return replace(said, processing_us=0, links=links, rates=()).signed(self._identity)


def replicas(world: World) -> list[str]:
    return [name for name, member in world.overlay.members.items() if member.certificate.role is Role.REPLICA]


def costs_at(kernel: Kernel, name: str) -> RegionCosts:
    node = kernel.nodes[name]
    return RegionCosts(node.overlay, node.measurer.summaries, kernel.now)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_everybody_learns_what_links_take_and_who_has_what_in_common() -> None:
    world, kernel, traffic = measured()
    kernel.run(END)
    judge(kernel.trace, traffic, world)
    assert kernel.trace.figures.get("refused", 0) == 0
    for name in replicas(world):
        costs = costs_at(kernel, name)
        for a, b in RING:
            link = costs.link_cost(a, b)
            assert link is not None, f"{name} knows nothing of {a}-{b}"
            assert 1_000 <= link <= 20_000, "one way takes 1 to 20 ms"
        assert costs.link_cost(1, 3) is None, "nobody may join these"
        for region in (2, 4):  # readers, who want all that is published in 1 and 3
            for several, count in (({region}, 2), ({2, 4}, 2), ({1, region}, 2), ({1, 2, 3, 4}, 2)):
                assert costs.concerned(frozenset(several)) == pytest.approx(count * RATE * 10, rel=0.2)
            assert costs.concerned(frozenset({1})) == pytest.approx(RATE * 10, rel=0.2)
            for home in (1, 3):
                assert costs.rate(home, region) == pytest.approx(RATE, rel=0.2)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_liar_in_each_region_moves_nothing(seed: int) -> None:
    """The figures at an honest replica lie where honest ones alone would have put them."""
    liars = ("r1a", "r2b", "r3c", "r4a")
    world = ring(PLAIN, seed)
    names = [world.overlay.views[region].members[place] for region, place in ((1, 0), (2, 1), (3, 2), (4, 0))]
    world, kernel, traffic = measured(names, seed)
    kernel.run(END)
    judge(kernel.trace, traffic, world)
    assert len(names) == len(liars)
    honest = next(name for name in replicas(world) if name not in names)
    costs = costs_at(kernel, honest)
    lied = [said for name in names for said in [costs.of_replicas(world.overlay.certificate(name).region)[name]]]
    assert any(said.links and said.links[0][1] == 4_000_000_000 for said in lied)
    for a, b in RING:
        assert 1_000 <= (costs.link_cost(a, b) or 0) <= 20_000
    for regions, count in (({1}, 1), ({2}, 2), ({4}, 2), ({1, 2, 3, 4}, 2)):
        assert costs.concerned(frozenset(regions)) == pytest.approx(count * RATE * 10, rel=0.2)
    assert costs.rate(1, 4) == pytest.approx(RATE, rel=0.2)


@pytest.mark.slow
def test_where_too_few_speak_nothing_is_known() -> None:
    world, kernel, _ = measured()
    gone = world.overlay.views[2].members[0]
    kernel.run(NOW + 5)
    kernel.crash(gone)
    kernel.run(END)
    costs = costs_at(kernel, world.overlay.views[3].members[0])
    assert costs.spoke(2) == 2
    assert costs.link_cost(1, 2) is None
    told = [said for region in (1, 3) for said in costs.of_replicas(region).values()]
    failures = {failed for said in told for failed, _ in said.failed}
    assert failures == {gone}, "its neighbours say that it is away, and nobody else"
    for region in (1, 3):
        said = costs.of_replicas(region).values()
        assert sum(any(name == gone for name, _ in each.failed) for each in said) == 3


@pytest.mark.slow
@pytest.mark.parametrize("edge", [(1, 2), (2, 3), (3, 4)], ids=str)
@pytest.mark.parametrize("scope", [PLAIN, SEALED], ids=["plain", "sealed"])
def test_a_link_that_is_measured_comes_into_use_and_out_of_it(scope, edge) -> None:  # type: ignore[no-untyped-def]
    """It stood before its edge was in any tree: both ends still tell each other all that neighbours do."""
    world, kernel, traffic = measured(scope=scope)
    kernel.run(NOW + 8)
    newer = regrown(world, world.overlay, without(edge), kernel.now)
    tell(kernel, world, newer, world.overlay.views[3].members[1])
    kernel.run(NOW + 22)
    back = regrown(world, newer, without((4, 1)), kernel.now)
    tell(kernel, world, back, world.overlay.views[1].members[2])
    kernel.run(NOW + 60)
    judge(kernel.trace, traffic, world)


def test_without_the_owners_word_nobody_measures() -> None:
    world = ring(PLAIN)
    kernel = world.kernel(random.Random(1))
    kernel.start()
    load(kernel, world, 20, RATE)
    kernel.run(END)
    assert kernel.trace.figures.get("summaries", 0) == 0
    for name in replicas(world):
        node = kernel.nodes[name]
        assert isinstance(node, ReplicaNode)
        assert node.measurer.summaries == ()
        assert node.measurer.next_deadline is None
        node.handle(LinkDown("stranger"), kernel.now)
