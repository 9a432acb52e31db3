"""Secret forwarding on recorded data (paper A): what a key costs over hops and replicas, and what refreshing saves.

Interactions are the demands of real backbones, flights between airports on a backbone, and meetings of people who are
put on brokers at random. Brokers stand on the nodes of a backbone, joined by the shortest ways from a random root.
A key that is shared anew at each virtual node (Algorithm 2) stands beside wrapped shares, which VeilMQ has on ways of
more than four nodes, beside network coding, which one bad replica stops, and beside a repository: n parties, each at a
random broker, that hold a share each and give it to a subscriber who asks. Counted are shares and wraps over links; a
block of network coding counts 1 / n, since it is that part of the secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

from papers.experiments.dispersion import REPLICAS, WRAPPED_NODES, on_the_way, wrapped_on_the_way
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.intervals import mean_interval
from papers.real.recorded import (
    Backbone,
    BrokerTree,
    Recorded,
    Weighted,
    hops_from,
    part_of,
    shortest_tree,
)

EXPERIMENT = "real"
SIZES = (3, 5, 7, 9)
ROOTS, PAIRS = 10, 40
"""Trees a run for each source of interactions, and interactions on each."""
REFRESH_MESSAGES = tuple(range(1, 11))
PAPER_SAVED = 72.9
BROKERS = (75, 150, 300, 600, 1_000)
US = "janos-us"
"""The backbone that is nearest to the flights: 26 cities of the United States."""
LEAST_SAMPLES = 30
"""Fewer interactions with so many hops have no point in a figure."""
Interaction: TypeAlias = tuple[BrokerTree, int, int]
"""A tree of brokers, and those of publisher and subscriber."""


def coded(hops: int, replicas: int = REPLICAS) -> float:
    """Returns the like of network coding: each replica gives a block to each of the next node, h times."""
    return 1.0 + hops * replicas + 1.0


def by_repository(tree: BrokerTree, pair: tuple[int, int], replicas: int, draws: Draws) -> float:
    """Returns the like of a repository: a share goes to each of its parties, and from there to the subscriber."""
    publisher, subscriber = (hops_from(tree, end) for end in pair)
    parties = [draws.randrange(len(tree)) for _ in range(replicas)]
    return float(sum(publisher[party] + subscriber[party] + 2 for party in parties))


def interactions(recorded: Recorded, runs: int, draws: Draws) -> Iterator[tuple[str, Interaction]]:
    """Yields interactions of all sources, each with its source."""
    backbones = recorded.backbones()
    places = {backbone.name: backbone for backbone in backbones}
    flown = flown_pairs(recorded, places[US])
    met = list(met_pairs(recorded.meetings()))
    for _ in range(runs * ROOTS):
        backbone = draws.choice(backbones)
        for name, network, weights in (
            ("demands of backbones", backbone, backbone.demands),
            ("flights", places[US], flown),
            ("meetings", backbone, dict.fromkeys([(0, 0)], 1.0)),
        ):
            tree = shortest_tree(network.links, draws.randrange(len(network)))
            weighted = Weighted(weights)
            homes = {person: draws.randrange(len(network)) for person in sorted({one for pair in met for one in pair})}
            for _ in range(PAIRS):
                pair = weighted.draw(draws)
                if name == "meetings":
                    one, other = draws.choice(met)
                    pair = homes[one], homes[other]
                yield name, (tree, *pair)


def flown_pairs(recorded: Recorded, backbone: Backbone) -> Mapping[tuple[int, int], float]:
    """Returns the flights between nodes of a backbone, each airport at the nearest node."""
    airports = recorded.airports()
    nodes = {code: backbone.nearest(*place) for code, place in airports.items()}
    found: dict[tuple[int, int], float] = {}
    for flight in recorded.flights():
        if flight.origin in nodes and flight.target in nodes:
            pair = nodes[flight.origin], nodes[flight.target]
            found[pair] = found.get(pair, 0.0) + 1
    return found


def met_pairs(meetings: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yields two people for each time that they met."""
    for people in meetings:
        yield from combinations(sorted(people), 2)


# ------------------------------------------------------------------------------------------------- hops, replicas


def figure_hops(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts shares over links by the hops between publisher and subscriber, for one data key."""
    draws = Draws("real hops", seed)
    spent: dict[int, list[float]] = {}
    count = runs * ROOTS * PAIRS * 3
    for done, (_, (tree, publisher, subscriber)) in enumerate(interactions(recorded, runs, draws)):
        hops = hops_from(tree, publisher)[subscriber]
        spent.setdefault(hops, []).append(by_repository(tree, (publisher, subscriber), REPLICAS, draws))
        progress(done / count)
    points = [hops for hops in sorted(spent) if len(spent[hops]) >= LEAST_SAMPLES]
    rows = [
        (float(hops), float(len(spent[hops])), on_the_way(hops), wrapped_on_the_way(hops), coded(hops),
         *mean_interval(spent[hops]))
        for hops in points
    ]  # fmt: skip
    xs = tuple(map(float, points))
    columns = [tuple(row[at] for row in rows) for at in range(7)]
    return Figure(
        experiment=EXPERIMENT,
        number="hops",
        title="A: shares of one key over all links, by hops",
        x_label="hops between brokers",
        y_label="shares over links",
        series=(
            Series("Algorithm 2", xs, columns[2]),
            Series("wrapped shares (VeilMQ)", xs, columns[3]),
            Series("network coding", xs, columns[4]),
            Series("repository of three parties", xs, columns[5], columns[6]),
        ),
        columns=("hops", "interactions", "Algorithm 2", "wrapped shares", "network coding", "repository", "± 95 %"),
        rows=tuple(rows),
        notes=(
            "Wrapped shares count shares and wraps. Up to three hops VeilMQ wraps nothing; beyond, they grow as the "
            "square of the hops and no more by n a hop.",
            "From the second hop on the repository costs less: that is the price of a key that no party holds for "
            "longer than it takes to pass it on. What a repository keeps, its parties can be asked for later, and "
            "everybody must reach them.",
            "Network coding costs least of all and is stopped by one bad replica (figures 3 and 4 of secret "
            "forwarding).",
            "Demands of SNDlib's backbones, flights of 2013 from New York on the backbone janos-us, meetings of "
            "Davis's Southern women.",
        ),
        log_y=True,
    )


def figure_replicas(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts shares over links by the replicas of a virtual node, by source of interactions."""
    draws = Draws("real replicas", seed)
    means: dict[str, list[tuple[int, BrokerTree, tuple[int, int]]]] = {}
    for name, (tree, publisher, subscriber) in interactions(recorded, runs, draws):
        hops = hops_from(tree, publisher)[subscriber]
        means.setdefault(name, []).append((hops, tree, (publisher, subscriber)))
    rows: list[tuple[float | str, ...]] = []
    series = []
    xs = tuple(map(float, SIZES))
    for done, (name, found) in enumerate(means.items()):
        ours, theirs = [], []
        for replicas in SIZES:
            ours.append(mean_interval([on_the_way(hops, replicas) for hops, _, _ in found]))
            theirs.append(mean_interval([by_repository(tree, pair, replicas, draws) for _, tree, pair in found]))
            far = mean_interval([float(hops) for hops, _, _ in found])[0]
            rows.append((name, float(replicas), float((replicas - 1) // 2), far, *ours[-1], *theirs[-1]))
        for what, values in ((f"Algorithm 2, {name}", ours), (f"repository, {name}", theirs)):
            series.append(Series(what, xs, *(tuple(value[at] for value in values) for at in (0, 1))))
        progress((done + 1) / len(means))
    return Figure(
        experiment=EXPERIMENT,
        number="replicas",
        title="A: shares of one key over all links, by replicas of a virtual node",
        x_label="replicas n of a virtual node",
        y_label="shares over links, mean of interactions",
        series=tuple(series),
        columns=("source", "n", "bad replicas borne", "mean hops", "Algorithm 2", "± 95 %", "repository", "± 95 %"),
        rows=tuple(rows),
        notes=(
            "Algorithm 2 grows as n to the power of hops + 1, the repository as n: it is the cheaper one everywhere.",
            "The mean is that of few long ways: half of all interactions cost less by an order.",
        ),
        log_y=True,
    )


# -------------------------------------------------------------------------------------------------------- refresh


def saved(sequence: Sequence[tuple[str, str]], messages: int) -> float:
    """Returns the per cent of keys that are spared if one serves so many messages of a pair of friends."""
    counts: dict[tuple[str, str], int] = {}
    for pair in sequence:
        counts[pair] = counts.get(pair, 0) + 1
    keys = sum(-(-count // messages) for count in counts.values())
    return 100 * (1 - keys / len(sequence))


def figure_refresh(seed: int, progress: Progress, *, recorded: Recorded) -> Figure:
    """Counts the keys that are spared by a key for several messages of a pair. Nothing is drawn."""
    del seed
    months: dict[int, list[tuple[str, str]]] = {}
    for flight in recorded.flights():
        months.setdefault(flight.month, []).append((flight.plane, flight.target))
    routes: dict[int, list[tuple[str, str]]] = {}
    for flight in recorded.flights():
        routes.setdefault(flight.month, []).append((flight.carrier + flight.origin, flight.target))
    met = list(met_pairs(recorded.meetings()))
    sources = {
        "a plane and its target, by month": list(months.values()),
        "a carrier and its route, by month": list(routes.values()),
        "two of the Southern women": [met],
    }
    xs = tuple(1 / messages for messages in REFRESH_MESSAGES)
    series, rows = [], []
    for done, (name, parts) in enumerate(sources.items()):
        values = [mean_interval([saved(part, messages) for part in parts]) for messages in REFRESH_MESSAGES]
        intervals = tuple(half for _, half in values) if len(parts) > 1 else ()
        series.append(Series(name, xs, tuple(mean for mean, _ in values), intervals))
        rows += [(name, x, *value) for x, value in zip(xs, values, strict=True)]
        progress((done + 1) / len(sources))
    series.append(Series("paper's trace", (0.1,), (PAPER_SAVED,)))
    return Figure(
        experiment=EXPERIMENT,
        number="refresh",
        title="A: keys spared by a key for several messages of a pair",
        x_label="keys per message",
        y_label="spared %",
        series=tuple(series),
        columns=("pairs", "keys per message", "spared %", "± 95 %"),
        rows=tuple(rows),
        notes=(
            f"Paper: {PAPER_SAVED} % at 0.1, by its figures. How often the same two meet again decides it: of a plane "
            "and a target it is seldom, of a route often.",
        ),
    )


def figure_scale(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts shares of an interaction on parts of a large backbone, between brokers that are drawn evenly."""
    world, rows = recorded.world(), list[tuple[float, ...]]()
    for size in BROKERS:
        ours, wrapped, theirs, far = [], [], [], []
        for run in range(runs * ROOTS):
            draws = Draws("real scale", seed, size, run)
            network = part_of(world, size, draws)
            tree = shortest_tree(network.links, central(network))
            for _ in range(PAIRS):
                pair = draws.randrange(size), draws.randrange(size)
                far.append(float(hops_from(tree, pair[0])[pair[1]]))
                ours.append(on_the_way(int(far[-1])))
                wrapped.append(wrapped_on_the_way(int(far[-1])))
                theirs.append(by_repository(tree, pair, REPLICAS, draws))
        middles = (sorted(counts)[len(counts) // 2] for counts in (ours, wrapped))
        rows.append((float(size), *mean_interval(far), *middles, *mean_interval(theirs)))
        progress(len(rows) / len(BROKERS))
    xs = tuple(map(float, BROKERS))
    columns = [tuple(row[at] for row in rows) for at in range(7)]
    return Figure(
        experiment=EXPERIMENT,
        number="scale-sharing",
        title="A: shares of one key over all links, by brokers on a real backbone",
        x_label="brokers",
        y_label="shares over links",
        series=(
            Series("Algorithm 2, median", xs, columns[3]),
            Series("wrapped shares (VeilMQ), median", xs, columns[4]),
            Series("repository of three parties, mean", xs, columns[5], columns[6]),
        ),
        columns=("brokers", "hops", "± 95 %", "Algorithm 2, median", "wrapped, median", "repository", "± 95 %"),
        rows=tuple(rows),
        notes=(
            "A broker on each node of a backbone: ways are long, and a key that is shared at each of them cannot be "
            "paid. Algorithm 2 is for few regions. Wrapped shares grow as the square of the way; VeilMQ has them for "
            f"up to {WRAPPED_NODES} regions, and longer ways stand here for comparison. The repository's cost grows "
            "with the way alone.",
            "Parts of TopoHub's backbone of the world around random nodes, trees of the shortest ways from the node "
            "that is nearest to all.",
        ),
        log_x=True,
        log_y=True,
    )


def central(network: Backbone) -> int:
    """Returns the middle of a longest way of a tree of shortest ways."""
    whole = shortest_tree(network.links, 0)
    first = max(enumerate(hops_from(whole, 0)), key=lambda each: each[1])[0]
    hops = hops_from(whole, first)
    here = max(enumerate(hops), key=lambda each: each[1])[0]
    for _ in range(hops[here] // 2):
        here = next(there for there in sorted(whole[here]) if hops[there] < hops[here])
    return here
