"""Four regions that could be joined in a circle, an organiser that is not the owner, and links that are slow."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from bridge.contract import Machine
from bridge.document import Arrangement, Organising, Overlay, SignedSwap, SwapEndorsement, SwapNews
from bridge.document.policy import ENDLESS_EPOCH, Scope
from bridge.document.trees import Edge
from bridge.organiser import OrganiserNode
from keys.epochs import Calendar
from papers.sim.kernel import Kernel
from tests.sim.test_trees import PLAIN, ROW
from tests.sim.world import NOW, World, make_world

BOSS = "boss"
GRACE_S = 5
ORGANISING = Organising(
    links=((4, 1), (2, 4)), interval_s=5, min_gain_percent=10, dwell_s=25, organiser=BOSS, grace_s=GRACE_S
)


def organised(scope: Scope = PLAIN, seed: int = 1, epochs: Calendar = ENDLESS_EPOCH, **changes: object) -> World:
    """In a row, as the owner signed it; `changes`: of `ORGANISING`."""
    gateways = {"site": 1, "second": 2, "third": 3, "far": 4, BOSS: 2}
    world = make_world(dict.fromkeys(range(1, 5), 3), ROW, gateways, [scope], seed=seed, calendar=epochs)
    world.overlay = world.with_policy(organising=replace(ORGANISING, **changes))  # type: ignore[arg-type]
    return world


class SlowLinks(Kernel):
    """Some edges take longer, one way."""

    world: World
    slow_s: Mapping[frozenset[int], float] = {}
    regions: dict[str, int]

    def _region(self, name: str) -> int:
        """The region of a member, also of one that the newest version does not list any more."""
        if name not in self.regions:
            self.regions[name] = self.world.overlay.certificate(name).region
        return self.regions[name]

    def _arrival(self, source: str, target: str) -> float:
        regions = frozenset(self._region(name) for name in (source, target))
        arrival = self.now + self._rng.uniform(*self._latency_s) + self.slow_s.get(regions, 0.0)
        arrival = max(arrival, self._last_arrival.get((source, target), 0.0))
        self._last_arrival[source, target] = arrival
        return arrival


def slowed(kernel: Kernel, *edges: Edge, by_s: float = 0.08) -> None:
    """These edges from now on, and no others but 2-4: of the owner's links 1-4 is the one to take."""
    assert isinstance(kernel, SlowLinks)
    kernel.slow_s = {frozenset(edge): by_s for edge in (*edges, (2, 4))}


def running(
    world: World, rng: random.Random, *slow: Edge, signs: bool = True,
    boss: Callable[[OrganiserNode], Machine] = lambda node: node,
) -> Kernel:  # fmt: skip
    """All of them, with the organiser; `boss`: what plays it."""
    kernel = world.kernel(rng)
    kernel.__class__ = SlowLinks
    assert isinstance(kernel, SlowLinks)
    kernel.world, kernel.regions = world, {}
    slowed(kernel, *slow)

    def made() -> Machine:
        return boss(OrganiserNode(world.overlay, world.identities[BOSS], BOSS, signs))

    kernel._makers[BOSS] = made
    kernel.nodes[BOSS] = made()
    return kernel


def swap_on(
    overlay: Overlay, world: World, added: Edge, removed: Edge, now: float = NOW, by: str = BOSS, **changes: object
) -> SignedSwap:
    """What the organiser, or somebody else, signs on top of what is in force."""
    number = overlay.arrangement.change.number + 1
    made = SignedSwap(
        number, 1, overlay.tree_digest, int(now * 1000), GRACE_S, added, removed, overlay.certificate(by)
    )  # fmt: skip
    return replace(made, **changes).signed(world.identities[by])  # type: ignore[arg-type]


def endorsements(world: World, swap: SignedSwap, *names: str) -> tuple[SwapEndorsement, ...]:
    return tuple(SwapEndorsement.sign_swap(swap, name, world.identities[name]) for name in names)


def of_regions(regions: Collection[int], places: str = "ab") -> list[str]:
    """Replicas at these places of these regions."""
    return [f"r{region}{place}" for region in regions for place in places]


def agreed(world: World, swap: SignedSwap, regions: Collection[int], places: str = "ab") -> SwapNews:
    """A swap with endorsements of the replicas at these places."""
    return SwapNews((swap,), endorsements(world, swap, *of_regions(regions, places)))


def edges_of(overlay: Overlay) -> set[frozenset[int]]:
    """Of the newest tree."""
    return set(overlay.trees.newest.edges)


def edge_set(*edges: Edge) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in edges}


def arrangement_of(kernel: Kernel, name: str) -> Arrangement:
    node = kernel.nodes[name]
    return node.overlay.arrangement  # type: ignore[attr-defined, no-any-return]
