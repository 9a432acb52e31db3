"""Histories of other regions: what a reader far from the region that keeps gets (docs/protocol-options.md §12.6).

Regions 1, 2, 3 stand in a row. Region 1 publishes and keeps, region 3 reads, region 2 passes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from bridge.contract import (
    FAR_TOPIC,
    HISTORY_TOPIC,
    Effect,
    Event,
    FarPage,
    ReadAgainLive,
    Received,
    Send,
    Wire,
    is_far_request,
)
from bridge.contract.machine import Machine
from bridge.document import History, Scope
from keys.envelope import Mode
from papers.sim.checkers import check_blame
from papers.sim.kernel import Kernel
from tests.seldom import in_turn
from tests.sim.test_history import LIES, PageLiar, change, check_alike, publish_some, reread
from tests.sim.world import NOW, Traffic, World, make_world, subscribe

KEPT = History(7, 100, (1,))
RELAY_LIES = ("drop", "some", "alter", "swap", "invent", "repeat", "read")


class FarPageLiar(PageLiar):
    """A replica that is honest but for the pages that it seals to readers of other regions."""

    def __init__(self, node: Machine, lie: str, rng: random.Random) -> None:
        super().__init__(node, lie, rng)
        self._now, far = 0.0, node._far  # type: ignore[attr-defined]
        self._answers: Callable[[Sequence[Effect]], list[Effect]] = far.answers
        far.answers = self._lied

    def _lied(self, effects: Sequence[Effect]) -> list[Effect]:
        lied: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and effect.wire.topic == HISTORY_TOPIC:
                lied += self._falsified(effect, self._now)
            else:
                lied.append(effect)
        return self._answers(lied)

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        self._now = now
        effects = list(self._node.handle(event, now))
        due = [send for at, send in self._later if at <= now]
        self._later = [(at, send) for at, send in self._later if at > now]
        return effects + self._answers(due)


class PassingLiar:
    """A replica that is honest but for the far requests and pages that it passes on."""

    def __init__(self, node: Machine, lie: str, rng: random.Random) -> None:
        self._node, self._lie, self._rng = node, lie, rng
        self._pages: list[Wire] = []
        self.seen: list[Wire] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)

    @property
    def next_deadline(self) -> float | None:
        return self._node.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Received):
            self.seen.append(event.wire)
        effects: list[Effect] = []
        for effect in self._node.handle(event, now):
            if isinstance(effect, Send) and effect.wire.topic == FAR_TOPIC:
                effects += self._falsified(effect)
            else:
                effects.append(effect)
        return effects

    def _falsified(self, send: Send) -> list[Effect]:
        is_request = is_far_request(send.wire.payload)
        match self._lie:
            case "drop":
                return []
            case "some" if self._rng.random() < 0.5:
                return []
            case "alter":
                return [replace(send, wire=Wire(FAR_TOPIC, flipped(send.wire.payload)))]
            case "swap" if not is_request and self._pages:
                page, other = FarPage.decode(send.wire.payload), FarPage.decode(self._pages[-1].payload)
                return [replace(send, wire=Wire(FAR_TOPIC, replace(other, digest=page.digest).encode()))]
            case "invent" if not is_request:
                page = FarPage.decode(send.wire.payload)
                return [replace(send, wire=Wire(FAR_TOPIC, replace(page, box=self._rng.randbytes(200)).encode()))]
            case "repeat":
                return [send] * 5
        if not is_request:
            self._pages.append(send.wire)
        return [send]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def a_world(seed: int, regions: int = 3, mode: Mode = Mode.COPIES, size: int = 3, kept: History = KEPT) -> World:
    scopes = [Scope("plant/#", mode, history=kept), Scope("open/#")]
    sizes = dict.fromkeys(range(1, regions + 1), size)
    edges = [(region, region + 1) for region in range(1, regions)]
    return make_world(sizes, edges, {"site": 1, "desk": 1, "late": regions}, scopes, seed)


def lying_far(world: World, rng: random.Random, pages: dict[str, str], passes: dict[str, str]) -> Kernel:
    """A kernel in which these replicas lie in pages for other regions, and those in what they pass on."""
    kernel = world.kernel(rng)
    for kind, lies in ((FarPageLiar, pages), (PassingLiar, passes)):
        for name, lie in lies.items():
            maker = kernel._makers[name]
            kernel._makers[name] = lambda maker=maker, lie=lie, kind=kind: kind(maker(), lie, rng)  # type: ignore[misc]
            kernel.nodes[name] = kernel._makers[name]()
    return kernel


def run(world: World, rng: random.Random, pages: dict[str, str], passes: dict[str, str], until: float) -> Kernel:
    kernel = lying_far(world, rng, pages, passes)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 20)
    reread(kernel, world, NOW + 4_000)
    kernel.run(until)
    check_alike(kernel, traffic)
    check_blame(kernel.trace.named_members(), [*pages, *passes])
    return kernel


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.BLOCKS, Mode.PLAIN])
@pytest.mark.parametrize("regions", [2, 3, 4])
def test_a_reader_of_a_region_that_keeps_nothing_has_what_a_live_one_had(mode: Mode, regions: int) -> None:
    world = a_world(3, regions, mode)
    kernel = run(world, random.Random(f"{mode}{regions}"), {}, {}, NOW + 4_030)
    assert not kernel.trace.suspected()
    far = [name for name, history in kernel.histories.items() if history._records and name[1] != "1"]
    assert not far, "the reader's own region has something, so that this shows nothing"


@pytest.mark.attack(182)
@pytest.mark.parametrize(("lie", "regions"), in_turn(RELAY_LIES, [2, 3]))
def test_who_passes_on_and_lies_changes_nothing(lie: str, regions: int) -> None:
    passes = {f"r{regions}a": lie, **({"r2b": lie} if regions == 3 else {})}
    kernel = run(a_world(5, regions), random.Random(f"{lie}{regions}"), {}, passes, NOW + 4_200)
    if lie in ("alter", "swap", "invent"):
        assert kernel.trace.suspected() <= set(passes), "somebody honest is suspected"
        assert kernel.trace.suspected()
    if lie == "repeat":
        assert kernel.trace.figures["far_repeated"]


@pytest.mark.parametrize(("lie", "size"), in_turn(LIES, [3, 5]))
def test_liars_in_the_region_that_keeps_and_on_the_way_change_nothing(lie: str, size: int) -> None:
    rng = random.Random(f"{lie}{size}")
    faults = (size - 1) // 2
    pages = {f"r1{letter}": lie for letter in "abc"[:faults]}
    passes = {f"r{region}{letter}": rng.choice(("drop", "alter")) for region in (2, 3) for letter in "cde"[:faults]}
    kernel = run(a_world(7, 3, size=size), rng, pages, passes, NOW + 4_700)
    if lie in ("alter", "twice", "backwards"):
        assert kernel.trace.suspected() & set(pages)
    assert kernel.trace.suspected() <= pages.keys() | passes.keys()


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40))])
def test_whatever_happens_inside_the_span_and_on_the_way(seed: int) -> None:
    rng = random.Random(f"far{seed}")
    mode = rng.choice((Mode.COPIES, Mode.PLAIN))
    scopes = [Scope("plant/#", mode, history=History(7, 100, (2,))), Scope("open/#")]
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 3), (3, 2)], {"site": 1, "desk": 2, "late": 1}, scopes, seed)
    pages = {rng.choice(("r2a", "r2b", "r2c")): rng.choice(LIES)} if seed % 3 else {}
    passes = {f"r{region}{rng.choice('abc')}": rng.choice(RELAY_LIES) for region in (1, 3)} if seed % 2 else {}
    kernel = lying_far(world, rng, pages, passes)
    subscribe(kernel, "desk", "plant/#")
    traffic = publish_some(kernel, rng, NOW + 80, 50)
    kernel.run(NOW + 10)
    for _ in range(5):
        change(kernel, world, rng.choice(("bump", "tree", "attach", "restart")), rng)
    reread(kernel, world, NOW + 1_000)
    kernel.run(NOW + 1_400)
    check_alike(kernel, traffic)
    check_blame(kernel.trace.named_members(), [*pages, *passes])


def test_nothing_is_missing_or_twice_where_a_far_reading_goes_over_to_what_is_live() -> None:
    """The publisher is in the reader's region, so that everything is here before the region that keeps has it."""
    rng = random.Random(61)
    scopes = [Scope("plant/#", history=KEPT), Scope("open/#")]
    gateways = {"site": 3, "desk": 1, "late": 3}
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], gateways, scopes, 61)
    kernel = world.kernel(rng, latency_s=(0.05, 0.4))
    live_at: list[float] = []
    node = kernel.nodes["late"]
    handle = node.handle

    def watched(event: Event, now: float) -> Sequence[Effect]:
        effects = handle(event, now)
        live_at.extend(now for effect in effects if isinstance(effect, ReadAgainLive))
        return effects

    node.handle = watched  # type: ignore[method-assign]
    for name in ("desk", "late"):
        subscribe(kernel, name, "plant/#")
    traffic = Traffic("site")
    for number in range(200):
        traffic.publish(kernel, NOW + 4 + number / (10 / 3), f"plant/{number % 3}", b"%d" % number)
    reread(kernel, world, NOW + 30)
    kernel.run(NOW + 120)
    past = {each.sequence for each in kernel.trace.reread[7]}
    assert len(live_at) == 1
    delivered = zip(kernel.trace.delivered_at["late"], kernel.trace.delivered["late"], strict=True)
    live = {each.sequence for at, each in delivered if at >= live_at[0]}
    assert past | live == set(traffic.published)
    assert len(kernel.trace.reread[7]) == len(past)
    assert len(past) < len(traffic.published), "it read everything, so that there is no seam"
