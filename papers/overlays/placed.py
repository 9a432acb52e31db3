"""Placement over a month of drawn failures: its steps at the replicas that fail, and their worth (A11, A12).

Six regions of three in a tree. Each replica fails and is repaired at drawn times; in the bad region one of them, or
all, fail much more often. Every day the owner asks members for their testimony on each other in the week before (one
replica of every region lies), and signs a single step at most. Without placement the failures hit the replicas alike.

Failures are drawn; the product's own functions decide which of them count, and the steps (`topology.witnesses`,
`topology.replica_proposals`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import fmean
from types import MappingProxyType

from bridge.topology import LinkSeen, Path, PlaceStep, ReplicaFigures, agreed, next_step
from keys.shamir import threshold_of
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series, mean_of

DAY_S = 86_400.0
DAYS, WINDOW_DAYS = 30, 7
EDGES = ((1, 2), (2, 3), (2, 4), (4, 5), (4, 6))
PATHS = ((1, 2, 3), (1, 2, 4, 5), (3, 2, 4, 6), (5, 4, 6))
REPLICAS = 3
MEANS_S = (5 * DAY_S, 1_200.0)
"""Mean seconds that an ordinary replica runs (five days), and is away (twenty minutes)."""
BAD_MEANS_S = (4 * 3_600.0, 3_600.0)
"""Mean seconds that a bad replica runs (four hours), and is away (one hour)."""
LINK_BREAKS_S = 2 * DAY_S
"""Mean seconds between breaks of a link that a witness sees though both ends run; it is back within a minute."""
RUNS = 25
EXPERIMENT = "placement"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The trouble of a month: the bad replicas of a region, and the owner's spares."""

    name: str
    bad: int
    spares: int


TROUBLES = (
    Trouble("nothing", 0, 2),
    Trouble("one replica fails", 1, 1),
    Trouble("one replica fails", 1, 2),
    Trouble("a region fails", 3, 1),
    Trouble("a region fails", 3, 2),
    Trouble("a region fails", 3, 4),
)


@dataclass
class PlacedMonth:
    """A month of a world. `away`: times at which each replica was down, in order; `views`: regions day by day."""

    trouble: Trouble
    seed: int
    number: int
    away: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    steps: list[tuple[int, PlaceStep]] = field(default_factory=list)

    def __post_init__(self) -> None:
        draws = self._draws("world")
        self.bad_region = 1 + draws.randrange(6)
        self.weights = [draws.uniform(10, 100) for _ in PATHS]
        self.regions = {region: [f"{region}-{place}" for place in range(REPLICAS)] for region in range(1, 7)}
        for region, members in self.regions.items():
            for place, name in enumerate(members):
                is_bad = region == self.bad_region and place < self.trouble.bad
                self._draw_failures(name, BAD_MEANS_S if is_bad else MEANS_S)
        for spare in range(self.trouble.spares):
            self._draw_failures(f"spare-{spare}", MEANS_S)

    def _draws(self, *what: str | int) -> Draws:
        return Draws("placed", self.trouble.bad, self.seed, self.number, *what)

    def _draw_failures(self, name: str, means_s: tuple[float, float]) -> None:
        draws, at = self._draws("replica", name), 0.0
        times = self.away[name] = []
        while at < DAYS * DAY_S:
            begins = at - means_s[0] * log(1 - draws.random())
            at = begins - means_s[1] * log(1 - draws.random())
            times.append((begins, at))

    def play(self, places: bool) -> tuple[list[float], float]:
        """Returns the carried part of each day, and the mean of the days after the first week.

        A publication is carried if its whole path has a quorum. `places`: True if the owner follows the proposals.
        """
        regions = {region: list(members) for region, members in self.regions.items()}
        spares = [f"spare-{number}" for number in range(self.trouble.spares)]
        days = []
        for day in range(DAYS):
            if places and day >= WINDOW_DAYS:
                self._place(regions, spares, day)
            days.append(self._carried(regions, day * DAY_S, (day + 1) * DAY_S))
        return days, fmean(days[WINDOW_DAYS:])

    def _place(self, regions: dict[int, list[str]], spares: list[str], day: int) -> None:
        """Asks for a proposal, and signs a single step."""
        paths = [Path(nodes, weight) for nodes, weight in zip(PATHS, self.weights, strict=True)]
        reports = {}
        near = {a: {y for x, y in (*EDGES, *((d, c) for c, d in EDGES)) if x == a} for a in regions}
        for region, members in regions.items():
            peers = [peer for other in near[region] for peer in regions[other]]
            for place, witness in enumerate(members):
                draws = self._draws("witness", witness, day)
                see = self._lied if place == 0 else self._saw
                reports[witness] = {peer: see(peer, day, draws) for peer in peers}
        counted = {one: agreed(reports, regions, one, region) for region, each in regions.items() for one in each}
        failures = {replica: one.failures for replica, one in counted.items()}
        figures = ReplicaFigures(failures, {replica: one.down for replica, one in counted.items()})
        step = next_step(regions, paths, figures, len(spares))
        if step is None:
            return
        self.steps.append((day, step))
        if step.is_attach:
            regions[step.region].append(spares.pop(0))
        else:
            regions[step.region].remove(step.member)

    def _saw(self, peer: str, day: int, draws: Draws) -> LinkSeen:
        """Returns an honest witness's testimony: the failures of the peer, and breaks of the link between."""
        end = day * DAY_S
        begin = end - WINDOW_DAYS * DAY_S
        times = [(max(a, begin), min(b, end)) for a, b in self.away[peer] if b > begin and a < end]
        breaks = [60 * draws.random() for _ in range(int(2 * draws.random() * WINDOW_DAYS * DAY_S / LINK_BREAKS_S))]
        return LinkSeen(len(times) + len(breaks), sum(b - a for a, b in times) + sum(breaks), end - begin)

    @staticmethod
    def _lied(peer: str, day: int, draws: Draws) -> LinkSeen:
        """Returns a liar's testimony: half of the peers fail all the time, the others never do."""
        return LinkSeen(1e6, 1.0, 1.0) if draws.random() < 0.5 else LinkSeen(watched_s=1.0)

    def _carried(self, regions: Mapping[int, Sequence[str]], begin: float, end: float) -> float:
        """Returns the time each path had a quorum everywhere, in a single sweep over failures and repairs."""
        changes = [
            (min(max(at, begin), end), region, change)
            for region, members in regions.items()
            for name in members
            for a, b in self.away[name]
            if b > begin and a < end
            for at, change in ((a, 1), (b, -1))
        ]
        most = {region: len(members) - threshold_of(len(members)) for region, members in regions.items()}
        down, good, last = dict.fromkeys(regions, 0), 0.0, begin
        whole = sum(self.weights)
        for at, region, change in [*sorted(changes), (end, min(regions), 0)]:
            if at > last:
                up = {one for one in regions if down[one] <= most[one]}
                good += (at - last) * sum(
                    w for w, nodes in zip(self.weights, PATHS, strict=True) if up.issuperset(nodes)
                )
                last = at
            down[region] += change
        return min(1.0, good / (whole * (end - begin)))


def figure_month(seed: int, progress: Progress, runs: int = RUNS) -> Figure:
    """Plays the carried part, with and without placement, and checks the first step is at the bad region."""
    rows: list[tuple[float | str, ...]] = []
    lines = []
    for done, trouble in enumerate(TROUBLES, 1):
        months = [PlacedMonth(trouble, seed, number) for number in range(runs)]
        without = [month.play(places=False) for month in months]
        placed = [month.play(places=True) for month in months]
        before, after = (fmean(one[1] for one in each) for each in (without, placed))
        first = [month.steps[0][1] for month in months if month.steps]
        right = [step.region == month.bad_region for month, step in
                 zip((m for m in months if m.steps), first, strict=True)]  # fmt: skip
        told = fmean(step.overall_at_end for step in first) if first else 0.0
        rows.append((
            trouble.name, float(trouble.spares), fmean(len(month.steps) for month in months),
            100 * fmean(right) if right and trouble.bad else "-", f"{100 * before:.4f}", f"{100 * after:.4f}",
            f"{100 * told:.4f}", 1440 * (1 - before), 1440 * (1 - after),
        ))  # fmt: skip
        if trouble.bad:
            days = tuple(float(day + 1) for day in range(DAYS))
            name = f"{trouble.name}, {trouble.spares} spare{'s' if trouble.spares > 1 else ''}"
            lines.append(Series(name, days, tuple(100 * fmean(one[0][day] for one in placed) for day in range(DAYS))))
        progress(done / len(TROUBLES))
    return Figure(
        experiment=EXPERIMENT,
        number="month",
        title=f"A month of failures in six regions of three, {mean_of(runs, 'month')}",
        x_label="day",
        y_label="% that finds a quorum on its path",
        series=tuple(lines),
        columns=("trouble", "spares", "steps", "first where it fails %", "before %", "placed %", "expected %",
                 "before, min a day", "placed, min a day"),
        rows=tuple(rows),
        notes=(
            "Paper A gives placement no figure over time; this is ours. In %: what finds a quorum on its whole path.",
            "From day 8 on, the first that a week of failures is known of. One replica of every region lies.",
            "Four replicas with k = 3 bear one failure, as three with k = 2 do: one spare takes a bad one's place, two "
            "make five with k = 3.",
            "'Expected' is what the first step said that its end would bring, of failures that come by themselves.",
        ),
    )  # fmt: skip


FIGURES: Mapping[str, Callable[..., Figure]] = MappingProxyType({"month": figure_month})
