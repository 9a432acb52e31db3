"""Small made data in the shape of the recorded ones, so that figures run in a moment."""

from __future__ import annotations

from papers.experiments.draws import Draws
from papers.real.recorded import Backbone, Flight, Quote, Recorded
from papers.real.sharing import US

SIDE = 6
AIRPORTS = {"AAA": (0.0, 0.0), "BBB": (5.0, 5.0), "CCC": (0.1, 4.9), "DDD": (3.0, 2.0)}


def grid(name: str, side: int = SIDE) -> Backbone:
    """Nodes on a grid, 100 km from neighbour to neighbour; all demand something of the first, and it of the last."""
    places = [(float(x), float(y)) for x in range(side) for y in range(side)]
    links: list[list[tuple[int, float]]] = [[] for _ in places]
    for at, (x, y) in enumerate(places):
        for other, (x2, y2) in enumerate(places):
            if abs(x - x2) + abs(y - y2) == 1:
                links[at].append((other, 100.0))
    demands = {(at, 0): 1.0 + at for at in range(1, len(places))} | {(0, len(places) - 1): 50.0}
    return Backbone(name, tuple(places), tuple(map(tuple, links)), demands)


def flights() -> list[Flight]:
    draws, codes = Draws("toy flights"), sorted(AIRPORTS)
    return [
        Flight(1 + number % 2, 1 + number % 5, 60, 90, codes[number % 2], draws.choice(codes), "XX", f"N{number % 9}")
        for number in range(200)
    ]


def recorded() -> Recorded:
    meetings = [("ann", "bea"), ("ann", "bea", "cat"), ("ann", "dot")]
    quotes = [Quote("ABC", f"2000-01-{day:02}", float(day)) for day in range(1, 29)]
    return Recorded(
        lambda: [grid("small", 3), grid(US)], lambda: grid("world", 12), flights, lambda: AIRPORTS,
        lambda: meetings, lambda: quotes,
    )  # fmt: skip
