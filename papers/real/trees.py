"""Self-organising trees on recorded data (paper D): cost of the demands of real backbones along trees of brokers.

A broker stands on each node; a link between two costs the km of the shortest way, and each broker's processing as much
as a mean link. All demands cost Eq 2 along a tree. The static tree is drawn at random, as the paper's. Beside it stand
the paper's heuristic (CI), played with these demands; the trees to which its baselines lead, of least links (ℓMST) and
of most common interest (ℓMIT); the swaps by Eq 2 of `veilmq overlay organise`; and the shortest ways from the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

from bridge.organising.swaps import swapped_tree, way
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.intervals import mean_interval
from papers.overlays.organised import PUBLISHED_A_TICK, Heuristic, Organised, TreeCosts
from papers.overlays.transitstub import Matrix, ways
from papers.real.recorded import Backbone, BrokerTree, Recorded, part_of, shortest_tree
from papers.real.sharing import central

EXPERIMENT = "real"
LARGEST = 70
"""Nodes of a backbone at most: beyond, the swaps by Eq 2 take hours in Python."""
EVERY = 4
"""One backbone in so many, by size, so that sizes are spread."""
STARTS = 4
TICKS, HOPS = 4_000, 4
KINDS_PLAYED = 200
"""The largest demands, with which CI is played."""
COST_MAX, MIN_GAIN = 10.0, 0.01
NAMES = ("CI", "ℓMST at its end", "ℓMIT at its end", "swaps by Eq 2", "shortest ways")
BROKERS = (75, 150, 300, 600, 1_000)
SCALE_KINDS, SCALE_STARTS, SCALE_TICKS = 50, 1, 3_000
Edge: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class World:
    """Costs of links and brokers, 0 to 10, and demands by pair."""

    links: Matrix
    processing: list[float]
    demands: Mapping[Edge, float]
    network: Backbone

    @classmethod
    def on_backbone(cls, network: Backbone, demands: Mapping[Edge, float]) -> World:
        """Returns the world on a backbone."""
        km = [ways(network.links, start)[0] for start in range(len(network))]
        longest = max(map(max, km))
        links = [[COST_MAX * each / longest for each in row] for row in km]
        mean = fmean(cost for at, row in enumerate(links) for to, cost in enumerate(row) if at != to)
        return cls(links, [mean] * len(network), demands, network)

    def from_all(self, tree: Sequence[set[int]]) -> Matrix:
        """Returns the cost of the way between any two brokers along a tree: links, and all brokers but the first."""
        found = []
        for start in range(len(tree)):
            row, order = [-1.0] * len(tree), [start]
            row[start] = 0.0
            for here in order:
                for there in tree[here]:
                    if row[there] < 0:
                        row[there] = row[here] + self.links[here][there] + self.processing[there]
                        order.append(there)
            found.append(row)
        return found

    def cost(self, tree: Sequence[set[int]]) -> float:
        """Returns Eq 2 along a tree."""
        along = self.from_all(tree)
        return sum(rate * (along[a][b] + self.processing[a]) for (a, b), rate in self.demands.items())


class Given(Organised):
    """An overlay under the paper's heuristic whose notifications are demands: no client moves."""

    def __init__(self, world: World, tree: BrokerTree, seed: int, name: str) -> None:
        largest = sorted(world.demands.items(), key=lambda each: (-each[1], each[0]))[:KINDS_PLAYED]
        costs = TreeCosts(world.links, world.processing)
        super().__init__(costs, Heuristic.CI, HOPS, seed, name, len(largest))
        mean = fmean(rate for _, rate in largest)
        self.tree = [set(near) for near in tree]
        self._publishers = [origin for (origin, _), _ in largest]
        self._subscribers = [[target] for (_, target), _ in largest]
        self._rates = [PUBLISHED_A_TICK * rate / mean for _, rate in largest]

    def _move(self) -> None:
        """Leaves clients where they are."""

    def _rate(self, kind: int) -> float:
        return self._rates[kind]


def random_tree(brokers: int, draws: Draws) -> BrokerTree:
    """Returns a tree whose every broker joined an earlier one, in an order that is drawn."""
    order = list(range(brokers))
    draws.shuffle(order)
    tree: BrokerTree = [set() for _ in order]
    for at, broker in enumerate(order[1:], 1):
        other = order[draws.randrange(at)]
        tree[broker].add(other)
        tree[other].add(broker)
    return tree


def least_tree(brokers: int, price: Callable[[int, int], float]) -> BrokerTree:
    """Returns the spanning tree with the least sum of prices over all pairs (Prim)."""
    tree: BrokerTree = [set() for _ in range(brokers)]
    best = {broker: (price(0, broker), 0) for broker in range(1, brokers)}
    while best:
        broker = min(best, key=lambda each: (best[each], each))
        near = best.pop(broker)[1]
        tree[broker].add(near)
        tree[near].add(broker)
        best = {other: min(known, (price(broker, other), broker)) for other, known in best.items()}
    return tree


def best_swap(world: World, tree: Sequence[set[int]], links: Sequence[Edge]) -> tuple[float, Edge, Edge] | None:
    """Returns the swap for one of these links that spares most: the new cost, the link added, the link removed.

    None if none spares `MIN_GAIN`. Only demands between the sides of the removed link change their way.
    """
    along, before = world.from_all(tree), world.cost(tree)
    best: tuple[float, Edge, Edge] | None = None
    sides: dict[Edge, int] = {}
    for added in links:
        ring = way(tree, *added)
        for removed in pairwise(ring) if len(ring) > 2 else ():
            if removed not in sides:
                sides[removed] = _side(tree, removed)
            cost = before + _changed(world, along, added, sides[removed])
            if cost < before * (1 - MIN_GAIN) and (best is None or (cost, added, removed) < best):
                best = cost, added, removed
    return best


def _side(tree: Sequence[set[int]], removed: Edge) -> int:
    """Returns the brokers on the side of the first end of a link, as bits."""
    seen, order = {*removed}, [removed[0]]
    for here in order:
        order += [there for there in tree[here] if there not in seen]
        seen.update(tree[here])
    return sum(1 << broker for broker in order)


def _changed(world: World, along: Matrix, added: Edge, side: int) -> float:
    """Returns by how much Eq 2 rises if demands between the two sides go over the link `added`: its first end is on
    `side`.
    """
    a, b = added
    rises = 0.0
    for (start, end), rate in world.demands.items():
        is_here = side >> start & 1
        if is_here != side >> end & 1:
            near, far = (a, b) if is_here else (b, a)
            over = along[start][near] + world.links[near][far] + world.processing[far] + along[far][end]
            rises += rate * (over - along[start][end])
    return rises


def by_swaps(world: World, tree: BrokerTree) -> BrokerTree:
    """Returns the tree to which swaps by Eq 2 lead, for links of the network itself."""
    links = [(a, b) for a, near in enumerate(world.network.links) for b, _ in near if a < b]
    now = [set(near) for near in tree]
    while (found := best_swap(world, now, links)) is not None:
        made = swapped_tree(dict(enumerate(now)), found[1], found[2])
        now = [made[broker] for broker in range(len(now))]
    return now


def figure_trees(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 2) -> Figure:
    """Computes the cost of a backbone's demands by tree, beside random first trees, over the size of backbones."""
    backbones = [each for each in recorded.backbones() if len(each) <= LARGEST]
    chosen = backbones[::-EVERY][::-1]
    rows: list[tuple[float | str, ...]] = []
    for network in chosen:
        world = World.on_backbone(network, network.demands)
        fixed = _fixed_trees(world)
        found: list[tuple[float, ...]] = []
        for run in range(max(2, runs * STARTS)):
            first = random_tree(len(network), Draws("real trees", seed, network.name, run))
            overlay = Given(world, first, seed, f"{network.name} {run}")
            overlay.run(TICKS)
            trees = [overlay.tree, *fixed[:2], by_swaps(world, first), fixed[2]]
            found.append(tuple(100 * world.cost(tree) / world.cost(first) for tree in trees))
        columns = zip(*found, strict=True)
        rows.append((network.name, float(len(network)), *(x for column in columns for x in mean_interval(column))))
        progress(len(rows) / len(chosen))
    notes = (
        "Each demand is a kind of notification with one publisher and one subscriber. CI is the tree after "
        f"{TICKS:,} ticks with the {KINDS_PLAYED} largest demands.",
        "The tree of most common interest (ℓMIT) costs least on most backbones, less than CI and less than swaps by "
        "Eq 2: demands of a backbone meet in few large nodes, which such a tree joins to all others. The paper's "
        "interests are drawn evenly, and there it costs more than CI (figures 4 and 6 of self-organisation).",
        "Swaps begin at the random tree, take links of the backbone alone, and end where none spares 1 %.",
    )
    return _figure("trees", "D: cost of real demands, random trees at 100 %", rows, NAMES, notes)


def _fixed_trees(world: World) -> list[BrokerTree]:
    """Returns the trees of ℓMST, of ℓMIT, and of shortest ways."""
    shared: dict[Edge, float] = {}
    for (a, b), rate in world.demands.items():
        shared[min(a, b), max(a, b)] = shared.get((min(a, b), max(a, b)), 0.0) + rate
    size = len(world.processing)
    return [
        least_tree(size, lambda a, b: world.links[a][b]),
        least_tree(size, lambda a, b: -shared.get((min(a, b), max(a, b)), 0.0)),
        shortest_tree(world.network.links, central(world.network)),
    ]


def _figure(
    number: str, title: str, rows: Sequence[tuple[float | str, ...]], names: Sequence[str], notes: tuple[str, ...]
) -> Figure:
    xs = tuple(float(row[1]) for row in rows)
    return Figure(
        experiment=EXPERIMENT,
        number=number,
        title=title,
        x_label="brokers",
        y_label="cost, % of the random tree's",
        series=tuple(
            Series(name, xs, *(tuple(float(row[2 * at + 2 + more]) for row in rows) for more in (0, 1)))
            for at, name in enumerate(names)
        ),
        columns=("backbone", "brokers", *(text for name in names for text in (name, "± 95 %"))),
        rows=tuple(rows),
        notes=notes,
    )


def figure_scale(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Plays CI on parts of a large backbone, and computes its baselines' trees; demands are the paper's interests."""
    names = (NAMES[0], NAMES[1], NAMES[4])
    rows: list[tuple[float | str, ...]] = []
    for brokers in BROKERS:
        found: list[tuple[float, ...]] = []
        for run in range(max(2, runs * SCALE_STARTS)):
            draws = Draws("real scale trees", seed, brokers, run)
            network = part_of(recorded.world(), brokers, draws)
            world = World.on_backbone(network, {})
            overlay = Organised(
                TreeCosts(world.links, world.processing), Heuristic.CI, HOPS, seed, f"{brokers} {run}", SCALE_KINDS
            )
            first = [set(near) for near in overlay.tree]
            overlay.run(SCALE_TICKS)
            fixed = _fixed_trees(world)
            before = overlay.tree_cost(first)
            found.append(tuple(100 * overlay.tree_cost(tree) / before for tree in (overlay.tree, fixed[0], fixed[2])))
        columns = zip(*found, strict=True)
        name = recorded.world().name
        rows.append((name, float(brokers), *(x for column in columns for x in mean_interval(column))))
        progress(len(rows) / len(BROKERS))
    notes = (
        f"{SCALE_KINDS} kinds of notifications with nine subscribers each, as in the paper, and {SCALE_TICKS:,} ticks. "
        "A random tree has short ways, since each broker joined any earlier one. Links of a backbone are cheap and "
        "make long ways, on which each broker's processing counts: from 300 brokers on, trees of cheap links, and CI "
        "within these ticks, cost more than the random tree that they began with.",
    )
    return _figure("scale-trees", "D: cost on a real backbone, random trees at 100 %", rows, names, notes)
