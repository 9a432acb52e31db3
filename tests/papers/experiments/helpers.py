"""Experiments in small: sizes that take a moment, and how their figures are read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure
from papers.experiments.loads import Costs
from papers.experiments.pubsub import NetworkSize, PubSubNetwork
from papers.experiments.secret_forwarding import FIGURES

SMALL = NetworkSize(subscribers=128, publishers=4, topics=12, topics_a_publisher=3, topics_a_subscriber=2)
FEW = NetworkSize(subscribers=20, publishers=3, topics=5, topics_a_publisher=2, topics_a_subscriber=2)
SLOW = Costs(parse_us=300, verify_us=900, batched_verify_us=400)
Sizes = dict[str, object]
SECRETS: dict[str, Sizes] = {
    "3": {"counts": (3,)},
    "4": {"counts": (3,)},
    "7": {},
    "7-latency": {"counts": (3, 5), "hops": (1, 2, 3), "rounds": 3},
    "8": {"counts": (3, 10), "rounds": 3},
    "9": {"brokers": 40},
    "10": {"interactions": 3_000, "users": 2_000, "brokers": 40},
    "11": {"brokers": 60, "bad": (1, 8), "runs": 3, "clusterings": (0.5,), "interactions": 20_000},
}


def ignore(done: float) -> None:
    assert 0 < done <= 1


def network(seed: int = 1, size: NetworkSize = SMALL) -> PubSubNetwork:
    return PubSubNetwork(size, Draws("test", seed))


def line(figure: Figure, name: str) -> tuple[float, ...]:
    (ys,) = [series.ys for series in figure.series if series.name == name]
    return ys


def silent(_: float) -> None:
    pass


def small(number: str, seed: int = 1, progress: Callable[[float], None] = silent) -> Figure:
    sizes = dict(SECRETS[number])
    if number in ("7-latency", "8"):
        ticks = count()
        sizes["clock"] = lambda: next(ticks) / 1000
    return FIGURES[number](seed, progress, **sizes)


def rows(figure: Figure, **wanted: float | str) -> list[dict[str, float | str]]:
    named = [dict(zip(figure.columns, row, strict=True)) for row in figure.rows]
    return [row for row in named if all(row[name.replace("_", " ")] == value for name, value in wanted.items())]
