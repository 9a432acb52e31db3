"""Networks of the evaluation of paper D: transit and stub domains, brokers on some nodes, and the costs of their links.

The paper made 25 with BRITE, of 100 domains and over 10,000 nodes; ours have ten transit domains of ten nodes and 90
stub domains of 111, which is 10,090. Only the costs between brokers are used, brought to a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from papers.experiments.draws import Draws

Matrix: TypeAlias = list[list[float]]

TRANSITS, TRANSIT_NODES = 10, 10
STUBS, STUB_NODES = 90, 111
BETWEEN_TRANSITS, WITHIN_TRANSIT, INTO_STUB, WITHIN_STUB = (20.0, 60.0), (10.0, 30.0), (5.0, 15.0), (1.0, 5.0)
"""Lengths of links: a range each."""
CHORDS = 0.5
"""Further links of a domain beside its spanning ones, as a part of its nodes."""

Network: TypeAlias = list[list[tuple[int, float]]]
Links: TypeAlias = Sequence[Sequence[tuple[int, float]]]
"""By node its neighbours, and the length of the link to each."""


def network(draws: Draws) -> Network:
    """Draws a network: by node its neighbours, and the length of the link to each."""
    links: Network = [[] for _ in range(TRANSITS * TRANSIT_NODES + STUBS * STUB_NODES)]

    def join(a: int, b: int, lengths: tuple[float, float]) -> None:
        length = draws.uniform(*lengths)
        links[a].append((b, length))
        links[b].append((a, length))

    def domain(first: int, nodes: int, lengths: tuple[float, float]) -> None:
        for node in range(1, nodes):
            join(first + node, first + draws.randrange(node), lengths)
        for _ in range(int(nodes * CHORDS)):
            a, b = draws.randrange(nodes), draws.randrange(nodes)
            if a != b:
                join(first + a, first + b, lengths)

    core = TRANSITS * TRANSIT_NODES
    for transit in range(TRANSITS):
        domain(transit * TRANSIT_NODES, TRANSIT_NODES, WITHIN_TRANSIT)
        for other in {(transit + 1) % TRANSITS, draws.randrange(TRANSITS)} - {transit}:
            here, there = (place * TRANSIT_NODES + draws.randrange(TRANSIT_NODES) for place in (transit, other))
            join(here, there, BETWEEN_TRANSITS)
    for stub in range(STUBS):
        first = core + stub * STUB_NODES
        domain(first, STUB_NODES, WITHIN_STUB)
        join(first + draws.randrange(STUB_NODES), draws.randrange(core), INTO_STUB)
    return links


def ways(links: Links, start: int) -> tuple[list[float], list[int]]:
    """Returns the distance from `start` to each node, and the node before it on the shortest way; `start` before itself
    (Dijkstra).
    """
    found, before = [float("inf")] * len(links), list(range(len(links)))
    found[start] = 0.0
    waiting = [(0.0, start)]
    while waiting:
        length, here = heappop(waiting)
        if length > found[here]:
            continue
        for there, more in links[here]:
            if length + more < found[there]:
                found[there], before[there] = length + more, here
                heappush(waiting, (found[there], there))
    return found, before


def distances(links: Links, start: int) -> list[float]:
    """Returns the distances from a node to all."""
    return ways(links, start)[0]


def broker_costs(links: Network, brokers: int, draws: Draws) -> Matrix:
    """Returns the cost of a link between any two of so many brokers on random nodes: 0 to 1, by the shortest way."""
    places: dict[int, None] = {}
    while len(places) < brokers:
        places[draws.randrange(len(links))] = None
    rows = [distances(links, place) for place in places]
    lengths = [[row[place] for place in places] for row in rows]
    shortest = min(length for at, row in enumerate(lengths) for to, length in enumerate(row) if at != to)
    longest = max(max(row) for row in lengths)
    return [[max(0.0, length - shortest) / (longest - shortest) for length in row] for row in lengths]
