"""Brokers changing their tree by themselves, played (paper D, its section 5): savings and cost of heuristics.

Time goes in steps of 25 ticks. In a step each publisher's notifications are counted, delivered along the present tree
and paid for; some subscribers move; and a tenth of the brokers tell brokers within η hops their notifications of the
last 250 ticks. A broker hearing them judges a direct link (`bridge.organising`) and asks the cycle which link goes
instead.

Common interest is exact here: a filter of 100,000 bits with an interval's 250 ids in it is wrong once in a billion.
Broadcasts, requests and changes cost as much as notifications: the processing of each receiver, and the link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import exp

from bridge.organising import delivery_cost, indirect_cost, is_worth_it, link_to_remove, mean_common, ring_vectors
from papers.experiments.draws import Draws
from papers.overlays.transitstub import Matrix

STEP_TICKS, INTERVAL_TICKS = 25, 250
STEPS = INTERVAL_TICKS // STEP_TICKS
KINDS, SUBSCRIBERS = 50, 9
PUBLISHED_A_TICK, LIFE_TICKS = 0.2, 2_500
TELL_TICKS = 1_000


class Heuristic(StrEnum):
    """The heuristic by which the tree is changed."""

    STATIC = "static"
    CI = "CI"
    LMST = "ℓMST"
    LMIT = "ℓMIT"


@dataclass
class TreeCosts:
    """The costs of links and brokers, which a run does not change by itself."""

    links: Matrix
    processing: list[float]


@dataclass
class LinkTold:
    """The costs of a run in so many ticks: notifications, broadcasts, requests and changes, and the number of
    changes.
    """

    delivering: float = 0.0
    telling: float = 0.0
    asking: float = 0.0
    swaps: int = 0


class Organised:
    """An overlay of brokers under a single heuristic."""

    def __init__(
        self, costs: TreeCosts, heuristic: Heuristic, hops: int, seed: int, name: str, kinds: int = KINDS
    ) -> None:
        """Draws the overlay. `name` and `seed` name the world: equal for all heuristics. `kinds`: of notifications."""
        self.costs, self._heuristic, self._hops = costs, heuristic, hops
        self._draws = Draws("organised", name, seed)
        brokers = len(costs.processing)
        draws = self._draws
        self._load = [draws.random() for _ in range(brokers)]
        self.tree: list[set[int]] = [set() for _ in range(brokers)]
        for broker in range(1, brokers):
            self._join(broker, draws.randrange(broker))
        self._kinds = kinds
        self._publishers = [self._client() for _ in range(kinds)]
        self._subscribers = [[self._client() for _ in range(SUBSCRIBERS)] for _ in range(kinds)]
        self._recent: deque[list[tuple[frozenset[int], int]]] = deque()  # of each step of an interval: whom, how many
        self._common: list[dict[int, float]] = [dict.fromkeys(range(brokers), 0.0) for _ in range(brokers)]
        """By two brokers: notifications of the last interval that concerned both; with itself all of its own."""
        self._phis: dict[int, float] = {}  # of this step and tree
        self._spent: dict[int, float] = {}  # by kind: the cost of one notification
        self._now = 0
        self.told = LinkTold()

    def redraw(self, costs: TreeCosts) -> None:
        """Changes the costs of links, or brokers."""
        self.costs = costs
        self._spent.clear()

    def run(self, ticks: int) -> list[LinkTold]:
        """Plays so many ticks; returns the costs of each thousand."""
        found = []
        for step in range(1, ticks // STEP_TICKS + 1):
            self._now += STEP_TICKS
            self._move()
            self._publish_step()
            if self._heuristic is not Heuristic.STATIC and len(self._recent) == STEPS:  # before that little is known
                for broker in range(self._now // STEP_TICKS % STEPS, len(self.tree), STEPS):
                    self._broadcast(broker)
            if step * STEP_TICKS % TELL_TICKS == 0:
                found.append(self.told)
                self.told = LinkTold()
        return found

    # ------------------------------------------------------------------------------------------- clients

    def _client(self) -> int:
        """Draws a broker, by its load."""
        while True:
            broker = self._draws.randrange(len(self._load))
            if self._draws.random() < self._load[broker]:
                return broker

    def _rate(self, kind: int) -> float:
        """Returns the notifications of a kind in a tick."""
        del kind  # of all as many
        return PUBLISHED_A_TICK

    def _poisson(self, mean: float) -> int:
        bound, count, product = exp(-mean), 0, self._draws.random()
        while product > bound:
            count += 1
            product *= self._draws.random()
        return count

    def _move(self) -> None:
        """Moves some subscribers to other brokers."""
        for _ in range(self._poisson(self._kinds * SUBSCRIBERS * STEP_TICKS / LIFE_TICKS)):
            kind = self._draws.randrange(self._kinds)
            self._subscribers[kind][self._draws.randrange(SUBSCRIBERS)] = self._client()
            self._spent.pop(kind, None)

    def _publish_step(self) -> None:
        said = []
        for kind in range(self._kinds):
            count = self._poisson(self._rate(kind) * STEP_TICKS)
            concerned = [self._publishers[kind], *self._subscribers[kind]]
            if kind not in self._spent:
                self._spent[kind] = self._delivery_cost(self.tree, kind)
            self.told.delivering += count * self._spent[kind]
            said.append((frozenset(concerned), count))
        if self._heuristic is not Heuristic.STATIC:
            if len(self._recent) == STEPS:
                self._count_notifications(self._recent.popleft(), -1)
            self._count_notifications(said, 1)
            self._recent.append(said)
        self._phis.clear()

    def _delivery_cost(self, tree: Sequence[set[int]], kind: int) -> float:
        concerned = dict.fromkeys([self._publishers[kind], *self._subscribers[kind]])
        return delivery_cost(tree, concerned, self.link_cost, self.costs.processing)

    def concerned(self, brokers: Collection[int]) -> float:
        """Returns the number of kinds concerning one or more of these brokers: for functions that judge by Eq 2."""
        clients = zip(self._publishers, self._subscribers, strict=True)
        return float(sum(not {publisher, *subscribers}.isdisjoint(brokers) for publisher, subscribers in clients))

    def link_cost(self, a: int, b: int) -> float:
        return self.costs.links[a][b]

    def processing(self, broker: int) -> float:
        return self.costs.processing[broker]

    def tree_cost(self, tree: Sequence[set[int]]) -> float:
        """Returns the cost of a notification of each kind along this tree now, all together."""
        return sum(self._delivery_cost(tree, kind) for kind in range(self._kinds))

    def _count_notifications(self, said: list[tuple[frozenset[int], int]], sign: int) -> None:
        """Adds the notifications of a step to the brokers' common counts, or takes them away. Whole numbers: nothing
        is lost.
        """
        for concerned, count in said:
            for broker in concerned:
                common = self._common[broker]
                for other in concerned:
                    common[other] += sign * count

    # -------------------------------------------------------------------------------------------- the tree

    def _join(self, a: int, b: int) -> None:
        self.tree[a].add(b)
        self.tree[b].add(a)

    def _broadcast(self, origin: int) -> None:
        """Sends a broadcast: every broker within η hops hears it, on the way that it took, and may want a link."""
        common = self._common[origin]
        ways = [[origin]]
        for way in ways:
            here = way[-1]
            for there in sorted(self.tree[here]):
                if there not in way:
                    self.told.telling += self.link_cost(here, there) + self.costs.processing[there]
                    if len(way) < self._hops:
                        ways.append([*way, there])
                    if len(way) >= 2 and self._wants([there, *reversed(way)], common):
                        return  # the tree changed: further effects of the broadcast are out of date

    def _wants(self, path: list[int], common_of_end: dict[int, float]) -> bool:
        """Lets the first broker of `path`, which has heard of the last, judge a link; returns True if the tree was
        changed.
        """
        first, last = path[0], path[-1]
        if not common_of_end[first]:
            return False
        direct = self.link_cost(first, last)
        links = [self.link_cost(a, b) for a, b in pairwise(path)]
        if self._heuristic is Heuristic.LMST:
            return direct < max(links) and self._swap(path, links.index(max(links)))
        if self._heuristic is Heuristic.LMIT:
            shared = [self._common[a][b] for a, b in pairwise(path)]
            return common_of_end[first] > min(shared) and self._swap(path, shared.index(min(shared)))
        common = self._common[first]
        taken = [self.costs.processing[broker] for broker in path]
        indirect = indirect_cost(path, common, self._phi(first, common), links, taken)
        if not is_worth_it(direct, indirect, common[last]):
            return False
        return self._agree(path, [*links, direct], taken)

    def _phi(self, broker: int, common: dict[int, float]) -> float:
        """Returns φ of a broker over the neighbourhood of η hops."""
        if broker in self._phis:
            return self._phis[broker]
        near = {broker: common[broker]}
        edge = [broker]
        for _ in range(self._hops):
            edge = [there for here in edge for there in self.tree[here] if there not in near]
            near.update((there, common[there]) for there in edge)
        self._phis[broker] = mean_common(near, common[broker])
        return self._phis[broker]

    def _agree(self, ring: list[int], links: list[float], taken: list[float]) -> bool:
        """Sends the request round the cycle; the last broker decides."""
        common = [self._common[broker] for broker in ring]
        phis = [self._phi(broker, shared) for broker, shared in zip(ring, common, strict=True)]
        vectors = ring_vectors(ring, common, phis, links, taken)
        assert vectors is not None, "everybody on it is within reach"
        self.told.asking += sum(links[:-1]) + sum(taken[1:])
        removed = link_to_remove(vectors, ring)
        return removed < len(ring) - 1 and self._swap(ring, removed)

    def _swap(self, path: Sequence[int], removed: int) -> bool:
        """Removes the link number `removed` of the path, and adds another between its ends."""
        one, other = path[removed], path[removed + 1]
        self.tree[one].discard(other)
        self.tree[other].discard(one)
        self._join(path[0], path[-1])
        self.told.swaps += 1
        self.told.asking += sum(self.link_cost(a, b) + self.costs.processing[b] for a, b in pairwise(path))
        self._spent.clear()
        self._phis.clear()
        return True
