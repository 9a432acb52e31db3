"""The cost-and-interest heuristic beside the optimum: of seven brokers all trees are counted out.

There are n^(n-2) trees of n brokers (Cayley), 16,807 of seven, one for each of Prüfer's sequences. The cost of each
is that of delivering every kind of notification along it at that moment. Paper D gives no such figure: its heuristic
is compared with other heuristics only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from statistics import fmean

from bridge.organising import good_swaps, swapped_tree
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.overlays.organised import Heuristic, Organised, TreeCosts
from papers.overlays.transitstub import broker_costs, network

BROKERS, KINDS = 7, 8
TICKS = 10_000
RUNS = 5
LOOKS = 5
HOPS = 4
COST_MAX = 10.0
MIN_GAIN = 0.02  # of `organise` in an overlay's description


def all_trees(count: int) -> Iterator[list[set[int]]]:
    """Yields every tree of `count` brokers, by its neighbours."""
    for code in product(range(count), repeat=count - 2):
        degree = [1 + code.count(node) for node in range(count)]
        tree: list[set[int]] = [set() for _ in range(count)]
        for node in code:
            leaf = degree.index(1)
            tree[leaf].add(node)
            tree[node].add(leaf)
            degree[leaf], degree[node] = 0, degree[node] - 1
        a, b = (node for node in range(count) if degree[node] == 1)
        tree[a].add(b)
        tree[b].add(a)
        yield tree


def by_eq_2(overlay: Organised, tree: list[set[int]]) -> list[set[int]]:
    """Returns the tree to which the overlay's own swaps lead from `tree` while nothing else changes."""
    links = list(combinations(range(len(tree)), 2))
    while swaps := good_swaps(dict(enumerate(tree)), links, overlay, MIN_GAIN):
        made = swapped_tree(dict(enumerate(tree)), swaps[0].added, swaps[0].removed)
        tree = [made[broker] for broker in range(len(tree))]
    return tree


def figure_optimum(seed: int, progress: Progress, runs: int = RUNS, ticks: int = TICKS) -> Figure:
    """Computes by network the cost of a notification of each kind: on the first tree, on CI's, and on the best one."""
    trees = list(all_trees(BROKERS))
    rows: list[tuple[float | str, ...]] = []
    for number in range(runs):
        draws = Draws("seven", seed, number)
        links = [[COST_MAX * cost for cost in row] for row in broker_costs(network(draws), BROKERS, draws)]
        costs = TreeCosts(links, [draws.uniform(0, COST_MAX) for _ in range(BROKERS)])
        overlay = Organised(costs, Heuristic.CI, HOPS, seed, f"seven {number}", KINDS)
        first = [set(near) for near in overlay.tree]
        overlay.run(ticks // 2)
        looks: list[tuple[float, ...]] = []
        for _ in range(LOOKS):
            overlay.run(ticks // 2 // LOOKS)
            ours = overlay.tree_cost(overlay.tree)
            every = [overlay.tree_cost(tree) for tree in trees]
            better = 100 * sum(one < ours - 1e-9 for one in every) / len(every)
            judged = overlay.tree_cost(by_eq_2(overlay, first))
            looks.append((overlay.tree_cost(first), ours, judged, min(every), fmean(every), better))
        before, ours, judged, best, middle, better = (fmean(each) for each in zip(*looks, strict=True))
        above = [100 * (each / best - 1) for each in (ours, judged)]
        rows.append((float(number), before, middle, ours, judged, best, *above, better))
        progress((number + 1) / runs)
    mean = [fmean(float(row[place]) for row in rows) for place in range(1, 9)]
    networks = tuple(float(row[0]) for row in rows)
    names = ("first tree", "mean tree", "CI", "by Eq 2", "best of all")
    return Figure(
        experiment="self-organisation",
        number="optimum",
        title=f"Seven brokers: all {BROKERS ** (BROKERS - 2):,} trees beside CI's, mean of {LOOKS} moments",
        x_label="network",
        y_label="cost of one notification of each kind",
        series=tuple(
            Series(name, networks, tuple(float(row[place]) for row in rows)) for place, name in enumerate(names, 1)
        ),
        columns=("network", *names, "CI above the best %", "Eq 2 above the best %", "trees better than CI's %"),
        rows=(*rows, ("mean", *mean)),
        notes=(
            f"In the second half of {ticks:,} ticks all trees are weighed {LOOKS} times, with the clients then. "
            "'By Eq 2' is where swaps of `veilmq overlay organise` lead from the first tree, each of which spares 2 %. "
            "The paper has no such figure.",
        ),
    )
