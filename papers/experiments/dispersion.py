"""Distance of friends: users on a tree of brokers, and the shares that one interaction costs (Figure 9).

Users sit on brokers by a Zipf distribution over the brokers' ranks, so that with a high alpha they are close
together. The distribution of hops between two of them is computed over all pairs of brokers instead of being sampled:
the median of the paper lies on a step of a few powers of three, where samples would only add noise. Not here: the
interactions and their number (`socialtrace`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from keys.wrapping import REGIONS_LIMIT, is_long
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series

BROKERS = 400
WRAPPED_NODES = REGIONS_LIMIT
"""The most virtual nodes of a way with wrapped keys."""
REPLICAS = 3
ALPHAS = (0.5, 1.0, 2.0)
FANOUTS = (2, 5)
PAPER = {
    (2, 0.5): "10 hops, median 80,000, mean 5 million",
    (2, 2.0): "2.6 hops, mean 860",
    (5, 0.5): "mean 939",
}

Histogram: TypeAlias = dict[int, float]
"""The probability of each number of hops between the brokers of publisher and subscriber."""


@dataclass(frozen=True, slots=True)
class DispersionTree:
    """Brokers 0 to n - 1; the parent of each has a smaller number, that of the root 0 is -1."""

    parents: tuple[int, ...]

    @classmethod
    def complete(cls, brokers: int, fanout: int) -> DispersionTree:
        """Returns a tree in which every broker has `fanout` children, as far as there are brokers; numbered level by
        level.
        """
        return cls((-1, *((v - 1) // fanout for v in range(1, brokers))))

    @classmethod
    def irregular(cls, brokers: int, fanout: int, draws: Draws) -> DispersionTree:
        """Returns a tree with 1 to 2 * fanout - 1 children each, so `fanout` on average; numbered level by level."""
        parents, parent = [-1], 0
        while len(parents) < brokers:
            parents += [parent] * min(1 + draws.randrange(2 * fanout - 1), brokers - len(parents))
            parent += 1
        return cls(tuple(parents))

    def __len__(self) -> int:
        return len(self.parents)

    def path(self, a: int, b: int) -> list[int]:
        """Returns the brokers from a to b, both included."""
        left, right = [a], [b]
        while left[-1] != right[-1]:
            side = left if left[-1] > right[-1] else right
            side.append(self.parents[side[-1]])
        return left + right[-2::-1]

    def distances(self) -> list[list[int]]:
        """Returns the hops between any two brokers."""
        rows: list[list[int]] = []
        for v, parent in enumerate(self.parents):
            above = [hops + 1 for hops in rows[parent]] if v else []
            for u in range(v):
                rows[u].append(above[u])
            rows.append([*above[:v], 0])
        return rows

    def depth_first(self) -> list[int]:
        """Returns all brokers in an order in which subtrees stay together."""
        children: list[list[int]] = [[] for _ in self.parents]
        for v in range(len(self.parents) - 1, 0, -1):
            children[self.parents[v]].append(v)
        order, waiting = [], [0]
        while waiting:
            v = waiting.pop()
            order.append(v)
            waiting += children[v]
        return order


def zipf_weights(order: Sequence[int], alpha: float) -> list[float]:
    """Returns for each broker the fraction of users on it; `order` lists the brokers by falling popularity."""
    popularity = [(rank + 1) ** -alpha for rank in range(len(order))]
    whole = sum(popularity)
    weights = [0.0] * len(order)
    for broker, weight in zip(order, popularity, strict=True):
        weights[broker] = weight / whole
    return weights


def hops_between(distances: Sequence[Sequence[int]], weights: Sequence[float]) -> Histogram:
    """Returns the distribution of hops between two users whose brokers are drawn by `weights`, independently."""
    found = [0.0] * len(weights)
    for row, weight in zip(distances, weights, strict=True):
        for hops, other in zip(row, weights, strict=True):
            found[hops] += weight * other
    return {hops: probability for hops, probability in enumerate(found) if probability}


def delivered(hops: int, replicas: int = REPLICAS) -> float:
    """Returns the shares reaching the subscriber: h hops between brokers have h + 1 virtual nodes of replicas."""
    return float(replicas ** (hops + 1))


def by_hops(hops: int) -> float:
    """Returns r^h to the letter, with h counted between brokers: the first split is not counted."""
    return float(REPLICAS**hops)


def on_the_way(hops: int, replicas: int = REPLICAS) -> float:
    """Returns the shares that any link carries: to the first virtual node, to the second, and so on to the
    subscriber.
    """
    return sum(float(replicas**level) for level in (*range(1, hops + 2), hops + 1))


def wrapped_on_the_way(hops: int, replicas: int = REPLICAS) -> float:
    """Returns the shares and wraps that any link carries if keys of long ways are wrapped (docs/protocol.md §3.5).

    A replica behind the second virtual node is sent a share of each wrap key, the wraps of its sender, and all wraps of
    the nodes before that. Where the way is short this is `on_the_way`.
    """
    nodes, pairs = hops + 1, replicas**2
    if not is_long(nodes):
        return on_the_way(hops, replicas)
    between = sum(pairs * (1 + replicas + (node - 2) * pairs) for node in range(2, nodes))
    return float(replicas + pairs + between + replicas * (replicas + (nodes - 2) * pairs))


@dataclass(frozen=True, slots=True)
class DispersionSummary:
    """Mean hops of a distribution of hops, and median and mean of the shares."""

    hops: float
    median: float
    mean: float


def summary(histogram: Mapping[int, float], shares: Callable[[int], float]) -> DispersionSummary:
    """Returns mean and median of hops and shares over a histogram of distances."""
    whole = sum(histogram.values())
    mean_hops = sum(hops * p for hops, p in histogram.items()) / whole
    ordered = sorted(histogram)
    below = accumulate(histogram[hops] for hops in ordered)
    middle = next(hops for hops, p in zip(ordered, below, strict=True) if p >= whole / 2)
    return DispersionSummary(mean_hops, shares(middle), sum(shares(hops) * p for hops, p in histogram.items()) / whole)


def apart(histogram: Mapping[int, float]) -> Histogram:
    """Returns the histogram without the pairs sharing a broker."""
    return {hops: p for hops, p in histogram.items() if hops}


def conventions(
    brokers: int, fanout: int, alpha: float, draws: Draws
) -> list[tuple[str, Histogram, DispersionSummary]]:
    """Returns the possible readings of the paper, the likeliest first."""
    complete = DispersionTree.complete(brokers, fanout)
    distances = complete.distances()
    near_root = hops_between(distances, zipf_weights(range(brokers), alpha))
    together = hops_between(distances, zipf_weights(complete.depth_first(), alpha))
    anywhere = list(range(brokers))
    draws.shuffle(anywhere)
    scattered = hops_between(distances, zipf_weights(anywhere, alpha))
    irregular = hops_between(
        DispersionTree.irregular(brokers, fanout, draws).distances(), zipf_weights(range(brokers), alpha)
    )
    readings: list[tuple[str, Histogram, Callable[[int], float]]] = [
        ("near the root, r^(h+1) delivered", near_root, delivered),
        ("near the root, r^h", near_root, by_hops),
        ("near the root, all links", near_root, on_the_way),
        ("near the root, two brokers, r^(h+1)", apart(near_root), delivered),
        ("subtree by subtree, r^(h+1)", together, delivered),
        ("scattered ranks, r^(h+1)", scattered, delivered),
        ("irregular tree, r^(h+1)", irregular, delivered),
    ]
    return [(name, histogram, summary(histogram, shares)) for name, histogram, shares in readings]


def figure_9(
    seed: int,
    progress: Progress,
    *,
    brokers: int = BROKERS,
    fanouts: Sequence[int] = FANOUTS,
    alphas: Sequence[float] = ALPHAS,
) -> Figure:
    """Draws the distribution of the shares of an interaction, by fan-out and alpha; all conventions in the table."""
    series, rows = [], []
    cases = [(fanout, alpha) for fanout in fanouts for alpha in alphas]
    for done, (fanout, alpha) in enumerate(cases):
        read = conventions(brokers, fanout, alpha, Draws("figure 9", seed, fanout, str(alpha)))
        for at, (name, _, found) in enumerate(read):
            paper = PAPER.get((fanout, alpha), "") if not at else ""
            rows.append((float(fanout), alpha, name, found.hops, found.median, found.mean, paper))
        histogram = read[0][1]
        ordered = sorted(histogram)
        ys = tuple(accumulate(histogram[hops] for hops in ordered))
        series.append(Series(f"fan-out {fanout}, α = {alpha:g}", tuple(delivered(hops) for hops in ordered), ys))
        progress((done + 1) / len(cases))
    return Figure(
        experiment="secret-forwarding",
        number="9",
        title=f"Shares of one interaction on {brokers} brokers x {REPLICAS} replicas, (2, 3)",
        x_label="shares",
        y_label="fraction of interactions",
        series=tuple(series),
        columns=("fan-out", "alpha", "convention", "mean hops", "median shares", "mean shares", "paper"),
        rows=tuple(rows),
        notes=(
            "The paper does not say how ranks lie on the tree, what counts as a share, or how regular the tree is. No "
            "single reading gives all its figures; the first, drawn, gives its 5 million for fan-out 2, α = 0.5.",
            "Its 939 for fan-out 5 and α = 0.5 is what α = 1 gives on pairs of two brokers (939.3): its text may name "
            "the wrong α there.",
            "Near the root: a complete tree, ranks level by level. Two brokers: only pairs on different brokers. "
            "Irregular: 1 to 2d - 1 children. Scattered: ranks at random; a high α brings no users together.",
            "Paper, from fan-out 2 to 5 at α = 0.5: -99 % by its text; 5 million to 939 is -99.98 %.",
        ),
        log_x=True,
    )
