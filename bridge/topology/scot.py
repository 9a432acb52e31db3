"""A structured cyclic overlay: a tree of regions times a complete graph of planes, and the spread of subscriptions in
it.

Broker (r, j) stands in region r and plane j. Links within a plane follow the tree (aCOLs), links within a region join
all its planes (iCOLs). A subscription takes two steps: PRIMARY along the tree in the plane of its host, SECONDARY from
each broker there to the others of its region, and no further. So a subscription needs no identification to end, every
broker gets it once, and its tree is the shortest there is. A row holds the plane of the host as a vector with a bit;
bits count from the right. Paper items C1 to C5. Not here: the routing of notifications (`routing.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from keys.errors import OurFault

PlanePlace: TypeAlias = tuple[int, int]
"""(region, plane), both from 0."""


class Scot:
    """The product of the tree `edges` over `regions` and the complete graph of `planes`."""

    def __init__(self, regions: int, edges: Sequence[tuple[int, int]], planes: int) -> None:
        """Raises OurFault unless the edges are a tree over all regions."""
        self.regions, self.planes = regions, planes
        self.edges = tuple((min(edge), max(edge)) for edge in edges)
        self._next = [[region] * regions for region in range(regions)]
        self._neighbours: list[list[int]] = [[] for _ in range(regions)]
        for a, b in self.edges:
            self._neighbours[a].append(b)
            self._neighbours[b].append(a)
        if len(self.edges) != regions - 1 or any(len(self._walk(region)) != regions for region in range(regions)):
            raise OurFault("the regions are not joined by a tree; give one edge fewer than regions, all in one piece")

    def _walk(self, start: int) -> list[int]:
        """Returns all regions in reach, nearest first; notes for each region its next neighbour towards `start`."""
        order, seen = [start], {start}
        for region in order:
            for other in self._neighbours[region]:
                if other not in seen:
                    seen.add(other)
                    order.append(other)
                    self._next[other][start] = region
        return order

    @property
    def brokers(self) -> list[PlanePlace]:
        return [(region, plane) for region in range(self.regions) for plane in range(self.planes)]

    @property
    def tree_links(self) -> list[tuple[PlanePlace, PlanePlace]]:
        """The aCOLs: |planes| x |edges of the tree| links."""
        return [((a, plane), (b, plane)) for plane in range(self.planes) for a, b in self.edges]

    @property
    def region_links(self) -> list[tuple[PlanePlace, PlanePlace]]:
        """The iCOLs: |regions| x |pairs of planes| links."""
        pairs = [(j, k) for k in range(self.planes) for j in range(k)]
        return [((region, j), (region, k)) for region in range(self.regions) for j, k in pairs]

    def neighbours(self, region: int) -> Sequence[int]:
        """Returns the neighbours of a region. A region with a single neighbour is an edge, the others are inner."""
        return self._neighbours[region]

    def towards(self, region: int, target: int) -> int:
        """Returns the next region on the way to `target`."""
        return self._next[region][target]

    def distance(self, region: int, target: int) -> int:
        """Returns the number of links between two regions."""
        steps = 0
        while region != target:
            region, steps = self.towards(region, target), steps + 1
        return steps


class PlaneStep(Enum):
    """The state in which a subscription travels."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


def spread(
    here: PlanePlace, step: PlaneStep, before: int | None, neighbours: Iterable[int], planes: int
) -> list[tuple[PlanePlace, PlaneStep]]:
    """Returns the next brokers of a subscription from `here`, each with its step: PRIMARY to the next regions but
    `before`, SECONDARY to the other planes of our region, where it ends.
    """
    if step is PlaneStep.SECONDARY:
        return []
    region, plane = here
    along = [((other, plane), PlaneStep.PRIMARY) for other in neighbours if other != before]
    return along + [((region, other), PlaneStep.SECONDARY) for other in range(planes) if other != plane]


@dataclass(frozen=True, slots=True)
class PlaneRow:
    """A subscription in a routing table. `last_hop` None: its subscriber is here; `vector`: its host's plane."""

    last_hop: PlanePlace | None
    vector: int


@dataclass(frozen=True, slots=True)
class PlaneTargets:
    """The directions of matching subscriptions: here, beyond regions of our plane, in other planes (bits)."""

    is_local: bool
    regions: tuple[int, ...]
    planes: int


class RowTable:
    """The routing table of a broker, a row for each subscription."""

    def __init__(self, scot: Scot, here: PlanePlace) -> None:
        self._scot, self.here = scot, here
        self.rows: dict[Hashable, PlaneRow] = {}

    def enter_subscription(
        self,
        subscription: Hashable,
        last_hop: PlanePlace | None = None,
        step: PlaneStep = PlaneStep.PRIMARY,
        vector: int = 0,
    ) -> list[tuple[PlanePlace, PlaneStep]]:
        """Enters a subscription. Returns its next brokers, each with its step. A local subscription needs neither hop
        nor vector.
        """
        self.rows[subscription] = PlaneRow(last_hop, vector if last_hop is not None else 1 << self.here[1])
        return self._onwards(last_hop, step)

    def remove_subscription(
        self, subscription: Hashable, last_hop: PlanePlace | None = None, step: PlaneStep = PlaneStep.PRIMARY
    ) -> list[tuple[PlanePlace, PlaneStep]]:
        """Removes a subscription. Returns the brokers to which it went, each with its step; none for an unknown
        subscription.
        """
        return self._onwards(last_hop, step) if self.rows.pop(subscription, None) is not None else []

    def _onwards(self, last_hop: PlanePlace | None, step: PlaneStep) -> list[tuple[PlanePlace, PlaneStep]]:
        before = None if last_hop is None else last_hop[0]
        return spread(self.here, step, before, self._scot.neighbours(self.here[0]), self._scot.planes)

    def targets(self, matching: Iterable[Hashable]) -> PlaneTargets:
        """Returns the directions of the subscriptions matching a notification."""
        own = 1 << self.here[1]
        is_local, planes, regions = False, 0, dict[int, None]()
        for row in (self.rows[subscription] for subscription in matching):
            if row.vector != own:
                planes |= row.vector
            elif row.last_hop is None:
                is_local = True
            else:
                regions[row.last_hop[0]] = None
        return PlaneTargets(is_local, tuple(regions), planes)


def subscribe_all(scot: Scot, tables: dict[PlanePlace, RowTable], subscription: Hashable, host: PlanePlace) -> int:
    """Carries a single subscription through the tables until nobody passes it on. Returns the number of messages."""
    steps = [(host, to, step) for to, step in tables[host].enter_subscription(subscription)]
    for sender, to, step in steps:  # grows in the loop
        following = tables[to].enter_subscription(subscription, sender, step, 1 << host[1])
        steps += [(to, then, state) for then, state in following]
    return len(steps)


def unsubscribe_all(tables: dict[PlanePlace, RowTable], subscription: Hashable, host: PlanePlace) -> int:
    """Removes a single subscription from the tables as `subscribe_all` carried it. Returns the number of messages."""
    steps = [(host, to, step) for to, step in tables[host].remove_subscription(subscription)]
    for sender, to, step in steps:
        steps += [(to, then, state) for then, state in tables[to].remove_subscription(subscription, sender, step)]
    return len(steps)
