"""The overlay and the workload of the experiments with planes: brokers, interests, and ways.

The paper's size by default: a tree of 15 regions (five inner ones in a row, two leaves each) times five planes; 500
symbols, of which every subscriber wants 2 %. Interest is a number with a bit for each broker. The unclustered
baseline gets its routes from floods in which the first copy wins; the unevenness of links decides how much longer
they are.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import log

from bridge.topology import PlanePlace, Scot, planes_of
from papers.experiments.draws import Draws

INNER, LEAVES_EACH, PLANES = 5, 2, 5
SYMBOLS, SELECTIVITY = 500, 0.02
LASTING, PASSING = 2.8, 0.3
"""A link delays a flooded subscription by 1 + LASTING x a draw of its own + PASSING x a draw of each flood, both
exponential. Fitted to the paper's trees (14 % shorter than flooded ones) and messages (12 % fewer)."""


def caterpillar(inner: int = INNER, leaves_each: int = LEAVES_EACH, planes: int = PLANES) -> Scot:
    """Returns an overlay with inner regions in a row, each with its leaves."""
    row = [(at, at + 1) for at in range(inner - 1)]
    leaves = [(at // leaves_each, inner + at) for at in range(inner * leaves_each)]
    return Scot(inner * (1 + leaves_each), row + leaves, planes)


class Market:
    """Subscribers on an overlay. Brokers are numbered region x planes + plane."""

    def __init__(self, scot: Scot, subscribers: int, draws: Draws) -> None:
        self.scot, self.subscribers = scot, subscribers
        self.brokers = scot.brokers
        wanted_each = round(SYMBOLS * SELECTIVITY)
        self.interest = [0] * (SYMBOLS + 1)  # the last symbol is the fast publisher's
        self.local: list[dict[int, int]] = [{} for _ in self.interest]  # subscribers by broker, of each symbol
        self.hosts = [draws.randrange(len(self.brokers)) for _ in range(subscribers)]
        for host in self.hosts:
            first = draws.randrange(SYMBOLS)
            for symbol in range(first, first + wanted_each):
                self._want(symbol % SYMBOLS, host)
        self._ahead = self._masks()
        self._regions: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def _want(self, symbol: int, host: int) -> None:
        self.interest[symbol] |= 1 << host
        self.local[symbol][host] = self.local[symbol].get(host, 0) + 1

    def hire(self, hosts: list[int]) -> None:
        """Adds the subscribers of the fast publisher."""
        for host in hosts:
            self._want(SYMBOLS, host)

    def _masks(self) -> dict[tuple[int, int], int]:
        """Returns for each directed edge of the tree the brokers of plane 0 that lie beyond it."""
        scot, masks = self.scot, dict[tuple[int, int], int]()
        for region in range(scot.regions):
            for other in range(scot.regions):
                if other != region:
                    edge = region, scot.towards(region, other)
                    masks[edge] = masks.get(edge, 0) | 1 << other * scot.planes
        return masks

    def number(self, place: PlanePlace) -> int:
        """Returns the number of a broker."""
        return place[0] * self.scot.planes + place[1]

    def regions(self, symbol: int, at: int, before: int) -> tuple[int, ...]:
        """Returns the next regions in our plane beyond a subscriber wants the symbol, without region `before` (-1:
        none).
        """
        key = symbol, at, before
        found = self._regions.get(key)
        if found is None:
            region, plane = self.brokers[at]
            found = self._regions[key] = tuple(
                other
                for other in self.scot.neighbours(region)
                if other != before and self.interest[symbol] & self._ahead[region, other] << plane
            )
        return found

    def planes(self, symbol: int, plane: int) -> int:
        """Returns the other planes in which a subscriber wants the symbol, as bits."""
        column = sum(1 << region * self.scot.planes for region in range(self.scot.regions))
        wanted = (each for each in range(self.scot.planes) if self.interest[symbol] & column << each)
        return sum(1 << each for each in wanted if each != plane)


class Flooded:
    """The unclustered baseline: for each broker that hosts subscribers the tree along which its subscriptions
    spread.
    """

    def __init__(self, scot: Scot, draws: Draws, lasting: float = LASTING, passing: float = PASSING) -> None:
        self.scot, self._brokers = scot, scot.brokers
        number = {place: at for at, place in enumerate(self._brokers)}
        self.neighbours: list[list[int]] = [[] for _ in self._brokers]
        for a, b in (*scot.tree_links, *scot.region_links):
            self.neighbours[number[a]].append(number[b])
            self.neighbours[number[b]].append(number[a])
        self._passing = passing
        self._link = {
            link: 1 + lasting * exponential(draws)
            for link in ((at, other) for at, others in enumerate(self.neighbours) for other in others)
        }
        self.last_hop: list[list[int]] = []  # [origin][broker]: the neighbour from which it came first
        self.length: list[list[int]] = []
        for origin in range(len(self._brokers)):
            self._flood(origin, draws)

    def _flood(self, origin: int, draws: Draws) -> None:
        hops, links = [-1] * len(self._brokers), [0] * len(self._brokers)
        reached = [(0.0, origin, origin, 0)]
        while reached:
            at_s, at, sender, length = heappop(reached)
            if hops[at] >= 0:
                continue
            hops[at], links[at] = sender, length
            for other in self.neighbours[at]:
                if hops[other] < 0:
                    took_s = self._link[at, other] + self._passing * exponential(draws)
                    heappush(reached, (at_s + took_s, other, at, length + 1))
        self.last_hop.append(hops)
        self.length.append(links)

    def next_hops(self, at: int, origins: int) -> dict[int, int]:
        """Returns by neighbour the origins, as bits, that are reached over it from broker `at`."""
        found: dict[int, int] = {}
        for origin in planes_of(origins):
            hop = self.last_hop[origin][at]
            found[hop] = found.get(hop, 0) | 1 << origin
        return found


def exponential(draws: Draws) -> float:
    """Draws an exponential number with mean 1."""
    return -log(1 - draws.random())


def mean_lengths(scot: Scot, flooded: Flooded) -> tuple[float, float]:
    """Returns the mean links from a broker to a subscription's host, over all pairs.

    First in the two-step trees, then in the flooded ones.
    """
    brokers = scot.brokers
    pairs = [(a, b) for a in range(len(brokers)) for b in range(len(brokers)) if a != b]
    clustered = sum(scot.distance(brokers[a][0], brokers[b][0]) + (brokers[a][1] != brokers[b][1]) for a, b in pairs)
    return clustered / len(pairs), sum(flooded.length[a][b] for a, b in pairs) / len(pairs)
