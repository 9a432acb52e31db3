"""Scaling of the structured overlay to 1,000 brokers: copies of a notification, and messages of a subscription.

The functions that replicas run (`topology.static`, `topology.subscribe_all`) are played on random trees of regions
with five planes. Baselines: every replica of a region passes each notification on to every replica of the next one,
as scopes without planes do; and flooding, where each broker passes its first copy on over all other links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bridge.topology import PlanePlace, RowTable, Scot, static, subscribe_all
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.intervals import mean_interval

PLANES, READERS, TREES = 5, 10, 20
BROKERS = (75, 150, 300, 600, 1_000)


def random_tree(regions: int, draws: Draws) -> Scot:
    """Returns an overlay whose every region joined an earlier one, drawn evenly."""
    return Scot(regions, [(draws.randrange(region), region) for region in range(1, regions)], PLANES)


def static_copies(scot: Scot, publisher: PlanePlace, readers: Sequence[PlanePlace]) -> int:
    """Returns the copies between brokers of a notification, routed by SNR."""
    tables = {place: RowTable(scot, place) for place in scot.brokers}
    for name, host in enumerate(readers):
        subscribe_all(scot, tables, name, host)
    copies, waiting = 0, deque[tuple[PlanePlace, PlanePlace | None]]([(publisher, None)])
    while waiting:
        here, sender = waiting.popleft()
        found = tables[here].targets(range(len(readers)))
        before = sender[0] if sender is not None and sender[1] == here[1] else None
        regions = [other for other in found.regions if other != before]
        made = static(here, regions, found.planes if sender is None else 0)
        copies += len(made)
        waiting.extend((copy.to, here) for copy in made)
    return copies


def copies_by_regions(scot: Scot, publisher: PlanePlace, readers: Sequence[PlanePlace]) -> int:
    """Returns the copies between brokers where every replica gives one to every replica of each next region."""
    edges = set()
    for reader, _ in readers:
        here = reader
        while here != publisher[0]:
            edges.add((here, scot.towards(here, publisher[0])))
            here = scot.towards(here, publisher[0])
    return len(edges) * scot.planes**2


def figure_scale(seed: int, progress: Progress, *, runs: int = 3) -> Figure:
    """Plays `TREES` random trees a run for each number of brokers."""
    rows: list[tuple[float | str, ...]] = []
    for brokers in BROKERS:
        planes, regions = [], []
        for run in range(TREES * runs):
            draws = Draws("scaling", seed, brokers, run)
            scot = random_tree(brokers // PLANES, draws)
            publisher, *readers = [scot.brokers[draws.randrange(brokers)] for _ in range(READERS + 1)]
            planes.append(float(static_copies(scot, publisher, readers)))
            regions.append(float(copies_by_regions(scot, publisher, readers)))
        links = len(scot.tree_links) + len(scot.region_links)
        floods = float(2 * links - brokers + 1)
        rows.append(
            (float(brokers), *mean_interval(planes), *mean_interval(regions), floods, float(brokers - 1), floods)
        )
        progress(len(rows) / len(BROKERS))
    xs = tuple(map(float, BROKERS))
    columns = [tuple(float(row[at]) for row in rows) for at in range(6)]
    return Figure(
        experiment="octopis",
        number="scale",
        title=f"Copies of one notification to {READERS} readers, {PLANES} planes",
        x_label="brokers",
        y_label="copies between brokers",
        series=(
            Series("along planes (SNR)", xs, columns[1], columns[2]),
            Series("every replica to every replica", xs, columns[3], columns[4]),
            Series("flooded", xs, columns[5]),
        ),
        columns=(
            "brokers",
            "SNR",
            "± 95 %",
            "all replicas",
            "± 95 %",
            "flooded",
            "subscription",
            "subscription flooded",
        ),
        rows=tuple(rows),
        notes=(
            f"{TREES * runs} random trees for each number of brokers; publisher and readers at random brokers.",
            "A subscription takes one message fewer than there are brokers in two steps. Flooded, each broker passes "
            "its first copy on over all other links.",
            "The paper evaluates 75 brokers alone, so it has no number beside this figure.",
        ),
        log_y=True,
    )
