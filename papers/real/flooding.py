"""Floods on real backbones (paper E): how far forged messages get, by brokers and by bad ones among them.

Brokers stand on the nodes of a part of a large backbone, joined by the shortest ways from its middle. A forger at a
bad broker floods the tree. With guards each honest broker drops what it gets, so that the flood goes as far as bad
brokers are joined; without, it reaches all. Counted are the links that carry forged messages.
"""

from __future__ import annotations

from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.intervals import mean_interval
from papers.real.recorded import BrokerTree, Recorded, part_of, shortest_tree
from papers.real.sharing import central

EXPERIMENT = "real"
BROKERS = (75, 150, 300, 600, 1_000)
BAD = (0.05, 0.25)
WORLDS, FLOODS = 10, 20
"""Parts of the backbone a run, and forgers on each."""


def flooded_links(tree: BrokerTree, bad: frozenset[int], start: int) -> int:
    """Returns the links that carry a forger's messages from a bad broker, if honest ones drop them."""
    links, order, seen = 0, [start], {start}
    for here in order:
        for there in tree[here]:
            if there not in seen:
                seen.add(there)
                links += 1
                if there in bad:
                    order.append(there)
    return links


def figure_scale(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts the links that a forger's messages cross, over the number of brokers."""
    rows = []
    for brokers in BROKERS:
        by_part: dict[float, list[float]] = {part: [] for part in BAD}
        for run in range(runs * WORLDS):
            draws = Draws("real floods", seed, brokers, run)
            network = part_of(recorded.world(), brokers, draws)
            tree = shortest_tree(network.links, central(network))
            for part, found in by_part.items():
                everybody = list(range(brokers))
                draws.shuffle(everybody)
                bad = frozenset(everybody[: round(part * brokers)])
                starts = sorted(bad)
                reached = sum(flooded_links(tree, bad, draws.choice(starts)) for _ in range(FLOODS))
                found.append(reached / FLOODS)
        guarded = [x for part in BAD for x in mean_interval(by_part[part])]
        rows.append((float(brokers), *guarded, float(brokers - 1)))
        progress(len(rows) / len(BROKERS))
    xs = tuple(row[0] for row in rows)
    columns = [tuple(row[at] for row in rows) for at in range(2 * len(BAD) + 2)]
    names = [f"guards, {part:.0%} bad" for part in BAD]
    return Figure(
        experiment=EXPERIMENT,
        number="scale-floods",
        title="E: links that carry a forger's messages on a real backbone",
        x_label="brokers",
        y_label="links",
        series=(
            *(Series(name, xs, columns[1 + 2 * at], columns[2 + 2 * at]) for at, name in enumerate(names)),
            Series("no guards", xs, columns[-1]),
        ),
        columns=("brokers", *(text for name in names for text in (name, "± 95 %")), "no guards"),
        rows=tuple(rows),
        notes=(
            "A flood ends at the first honest brokers, so its links depend on the part of bad ones and not on the size "
            "of the overlay. Without guards every link carries it.",
        ),
        log_x=True,
        log_y=True,
    )
