"""Recorded data as experiments take it: backbones, flights, meetings and quotes, and trees of brokers on backbones.

Who reads them from packages is `papers.simulating.real_data`. Here are no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import asin, cos, radians, sin, sqrt
from typing import TypeAlias

from papers.experiments.draws import Draws
from papers.overlays.transitstub import ways

EARTH_KM = 6371.0
Links: TypeAlias = tuple[tuple[tuple[int, float], ...], ...]
"""By node its neighbours, and the length of the link to each in km."""
BrokerTree: TypeAlias = list[set[int]]
"""By broker its neighbours in a tree."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """A network in one piece. `places`: longitude and latitude; `demands`: traffic by (source, target)."""

    name: str
    places: tuple[tuple[float, float], ...]
    links: Links
    demands: Mapping[tuple[int, int], float]

    def __len__(self) -> int:
        return len(self.places)

    def nearest(self, longitude: float, latitude: float) -> int:
        """Returns the node nearest to a place."""
        return min(range(len(self)), key=lambda node: distance_km(self.places[node], (longitude, latitude)))


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight. Days and months from 1, minutes of its day; codes of airports, carrier, plane."""

    month: int
    day: int
    minute: int
    minutes: int
    origin: str
    target: str
    carrier: str
    plane: str


@dataclass(frozen=True, slots=True)
class Quote:
    """A day's closing price of a share."""

    ticker: str
    day: str
    close: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """All data. Each is read when it is asked for, since a figure needs a part. `meetings`: who was there."""

    backbones: Callable[[], Sequence[Backbone]]
    """Networks with demands, the smallest first."""
    world: Callable[[], Backbone]
    """One large network."""
    flights: Callable[[], Sequence[Flight]]
    airports: Callable[[], Mapping[str, tuple[float, float]]]
    """Longitude and latitude by code."""
    meetings: Callable[[], Sequence[tuple[str, ...]]]
    quotes: Callable[[], Sequence[Quote]]


def distance_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Returns the great-circle distance of two places."""
    (a_long, a_lat), (b_long, b_lat) = (tuple(map(radians, place)) for place in (one, other))
    half = sin((b_lat - a_lat) / 2) ** 2 + cos(a_lat) * cos(b_lat) * sin((b_long - a_long) / 2) ** 2
    return 2 * EARTH_KM * asin(min(1.0, sqrt(half)))


def shortest_tree(links: Links, root: int) -> BrokerTree:
    """Returns the tree of shortest ways from a root: brokers on all nodes, joined along the network."""
    tree: BrokerTree = [set() for _ in links]
    for node, before in enumerate(ways(links, root)[1]):
        if node != before:
            tree[node].add(before)
            tree[before].add(node)
    return tree


def hops_from(tree: BrokerTree, start: int) -> list[int]:
    """Returns the links between a broker and each other one along a tree."""
    hops = [-1] * len(tree)
    hops[start], order = 0, [start]
    for here in order:
        for there in tree[here]:
            if hops[there] < 0:
                hops[there] = hops[here] + 1
                order.append(there)
    return hops


def part_of(network: Backbone, size: int, draws: Draws) -> Backbone:
    """Returns `size` nodes around a random one: those that are fewest links away. Has no demands."""
    start = draws.randrange(len(network))
    order, seen = [start], {start}
    for here in order:
        for there, _ in network.links[here]:
            if there not in seen:
                seen.add(there)
                order.append(there)
    number = {node: at for at, node in enumerate(order[:size])}
    links = tuple(
        tuple((number[there], km) for there, km in network.links[node] if there in number) for node in order[:size]
    )
    return Backbone(f"{network.name}, {size}", tuple(network.places[node] for node in order[:size]), links, {})


class Weighted:
    """Things that are drawn by their weight."""

    def __init__(self, weights: Mapping[tuple[int, int], float]) -> None:
        self._things = sorted(weights)
        self._sums = [0.0]
        for thing in self._things:
            self._sums.append(self._sums[-1] + weights[thing])
        assert all(low <= high for low, high in pairwise(self._sums)), "a weight is negative"

    def draw(self, draws: Draws) -> tuple[int, int]:
        at, low, high = draws.random() * self._sums[-1], 0, len(self._things) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if at < self._sums[middle + 1] else (middle + 1, high)
        return self._things[low]
