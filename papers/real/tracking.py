"""Tracing on recorded data (paper B): messages over links while planes are followed, by trackers, days and brokers.

Each plane is an entity of the broker in the city that it leaves, then of the one where it lands; trackers are at random
brokers. Ours and the paper's: the broker alone pings its entity, and publishes a trace of each change, and a sign of
life each `ALIVE_S`, along the tree to brokers with trackers. Beside it, trackers that ping an entity themselves each
`PING_S`; and gossip, in which each broker tells one other, drawn anew each `PING_S`, of all entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from bridge.topology import Scot
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.intervals import mean_interval
from papers.real.recorded import BrokerTree, Flight, Recorded, hops_from, part_of, shortest_tree
from papers.real.sharing import US, central

EXPERIMENT = "real"
TRACKERS = (1, 2, 5, 10, 20, 50)
BROKERS = (75, 150, 300, 600, 1_000)
PING_S, ALIVE_S = 1.0, 10.0
DAY_MINUTES = 1_440
DAYS = 4
"""Days of January a run."""
WORLDS = 4
"""Parts of the backbone a run."""
EACH, FOLLOWED = 4, 5
"""Entities of a broker, and trackers of each, where the number of brokers varies."""
NAMES = ("traces", "trackers ping", "gossip")
Distances: TypeAlias = list[list[int]]


def crossed(scot: Scot, start: int, ends: Sequence[int]) -> int:
    """Returns the links that one publication crosses along the tree to all these regions."""
    edges = set()
    for end in ends:
        here = end
        while here != start:
            edges.add(here)
            here = scot.towards(here, start)
    return len(edges)


def gossiped(distances: Distances) -> float:
    """Returns the messages over links a second of gossip: each broker to one other, any as likely."""
    brokers = len(distances)
    mean = sum(map(sum, distances)) / (brokers * (brokers - 1)) if brokers > 1 else 0.0
    return brokers * mean / PING_S


def followed(
    scot: Scot, distances: Distances, at: int, trackers: Sequence[int], seconds: float, changes: int
) -> tuple[float, float]:
    """Returns the messages over links of an entity that is so long at a broker: traces, and pings of trackers."""
    said = changes + seconds / ALIVE_S
    pinged = 2 * seconds / PING_S * sum(distances[at][tracker] for tracker in trackers)
    return said * crossed(scot, at, trackers), pinged


def figure_trackers(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts messages over links a second of whole days of flights, over the trackers of each plane."""
    backbone = next(each for each in recorded.backbones() if each.name == US)
    city = {code: backbone.nearest(*place) for code, place in recorded.airports().items()}
    tree = shortest_tree(backbone.links, central(backbone))
    scot, distances = overlay_on(tree)
    days: dict[int, list[Flight]] = {}
    for flight in recorded.flights():
        if flight.month == 1 and flight.origin in city and flight.target in city:
            days.setdefault(flight.day, []).append(flight)
    chosen = sorted(days)[: max(2, runs * DAYS)]
    rows = []
    for count in TRACKERS:
        found: list[tuple[float, ...]] = []
        for day in chosen:
            draws = Draws("real trackers", seed, count, day)
            traces = pings = 0.0
            for flight in days[day]:
                trackers = [draws.randrange(len(backbone)) for _ in range(count)]
                # In the air it belongs to the broker that it left; it takes off, lands and is gone again.
                more = followed(scot, distances, city[flight.origin], trackers, flight.minutes * 60.0, 2)
                traces, pings = traces + more[0], pings + more[1]
            a_day = DAY_MINUTES * 60.0
            found.append((traces / a_day, pings / a_day, gossiped(distances)))
        columns = zip(*found, strict=True)
        flights = sum(map(len, (days[day] for day in chosen))) / len(chosen)
        rows.append((float(count), flights, *(x for column in columns for x in mean_interval(column))))
        progress(len(rows) / len(TRACKERS))
    notes = (
        f"Flights from New York, the first {len(chosen)} days of January 2013, on the backbone janos-us. A plane is "
        "followed from take-off to landing.",
        "Gossip costs less than traces where each plane has ten trackers or more: it is there whether anybody looks "
        "or not, and a message of it speaks of all entities. It tells every broker of each entity, who may know or "
        "not, and nobody proves what it tells.",
    )
    title = "B: messages over links while planes are followed"
    return _figure("trackers", title, "trackers of a plane", "flights a day", rows, notes)


def overlay_on(tree: BrokerTree) -> tuple[Scot, Distances]:
    """Returns a tree of single brokers, and the links between any two."""
    edges = [(a, b) for a, near in enumerate(tree) for b in near if a < b]
    return Scot(len(tree), edges, 1), [hops_from(tree, start) for start in range(len(tree))]


def figure_scale(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts messages over links on parts of a large backbone; each broker has some entities."""
    rows = []
    for brokers in BROKERS:
        found: list[tuple[float, ...]] = []
        for run in range(max(2, runs * WORLDS)):
            draws = Draws("real scale trackers", seed, brokers, run)
            network = part_of(recorded.world(), brokers, draws)
            scot, distances = overlay_on(shortest_tree(network.links, central(network)))
            traces = pings = 0.0
            for at in range(brokers):
                for _ in range(EACH):
                    trackers = [draws.randrange(brokers) for _ in range(FOLLOWED)]
                    more = followed(scot, distances, at, trackers, 1.0, 0)
                    traces, pings = traces + more[0], pings + more[1]
            found.append((traces, pings, gossiped(distances)))
        columns = zip(*found, strict=True)
        rows.append((float(brokers), float(EACH), *(x for column in columns for x in mean_interval(column))))
        progress(len(rows) / len(BROKERS))
    notes = (
        f"{EACH} entities at each broker, each with {FOLLOWED} trackers anywhere, none of which changes; parts of "
        "TopoHub's backbone of the world.",
        "A message of gossip speaks of all entities, so its bytes grow with them; messages are counted here.",
    )
    return _figure("scale-tracking", "B: messages over links a second on a real backbone", "brokers", "entities each",
                   rows, notes)  # fmt: skip


def _figure(
    number: str, title: str, x_label: str, second: str, rows: Sequence[tuple[float, ...]], notes: tuple[str, ...]
) -> Figure:
    xs = tuple(row[0] for row in rows)
    return Figure(
        experiment=EXPERIMENT,
        number=number,
        title=title,
        x_label=x_label,
        y_label="messages over links a second",
        series=tuple(
            Series(name, xs, *(tuple(row[2 * at + 2 + more] for row in rows) for more in (0, 1)))
            for at, name in enumerate(NAMES)
        ),
        columns=(x_label, second, *(text for name in NAMES for text in (name, "± 95 %"))),
        rows=tuple(rows),
        notes=notes,
        log_x=True,
        log_y=True,
    )
