"""The live structured overlay beside a model by brute force: links, ways of publications, and floods of subscriptions.

The model knows a tree of regions with three replicas each, and a graph; nothing of the product. It finds links by the
paper's definition (C1: the tree in each plane, a complete graph in each region), ways by breadth-first search, and who
hears a subscription by flooding. The live side is signed overlays, `peers_of`, `PlaneRouting` and `StatementRelay` of
every replica, driven wire by wire.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from bridge.document import Overlay, Scope
from bridge.replica.plane_routing import PlaneRouting
from bridge.replica.statement_relay import StatementRelay
from bridge.topology import Planes, Routes, peers_of
from bridge.wire import Admitted, RoutingTable
from keys.envelope import Mode
from tests.sim.world import NOW, make_world

SCOPE = Scope("plant/#", Mode.PLAIN, planes=True)
Graph: TypeAlias = dict[str, set[str]]


class Model:
    """A tree of regions drawn from a seed, with three replicas each, and a reader or two in each region."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        regions = self.rng.randrange(2, 6)
        self.edges = [(self.rng.randrange(1, region), region) for region in range(2, regions + 1)]
        self.regions = range(1, regions + 1)
        self.readers = {f"g{region}{at}": region for region in self.regions for at in range(2)}
        self.home = self.rng.choice(self.regions)
        self.overlay: Overlay = make_world(
            dict.fromkeys(self.regions, 3), self.edges, {"site": self.home, **self.readers}, [SCOPE], seed
        ).overlay
        self.planes = Planes(self.overlay)
        self.replicas = {(region, plane): f"r{region}{'abc'[plane]}" for region in self.regions for plane in range(3)}

    def host(self, gateway: str) -> str:
        """The replica that a gateway hangs on: the one thing that the model takes from the product."""
        region = self.home if gateway == "site" else self.readers[gateway]
        return self.replicas[region, self.planes.host(SCOPE, gateway)]

    def links(self) -> set[frozenset[str]]:
        """C1: the tree in each plane, all pairs in each region."""
        along = {frozenset((self.replicas[a, j], self.replicas[b, j])) for a, b in self.edges for j in range(3)}
        across = {
            frozenset((self.replicas[region, j], self.replicas[region, k]))
            for region in self.regions for j in range(3) for k in range(j)
        }  # fmt: skip
        return along | across

    def graph(self, links: Iterable[frozenset[str]], without: frozenset[str] = frozenset()) -> Graph:
        found: Graph = {}
        for link in links:
            if not link & without:
                a, b = link
                found.setdefault(a, set()).add(b)
                found.setdefault(b, set()).add(a)
        return found


def distances(graph: Graph, starts: Iterable[str]) -> dict[str, int]:
    """Links to each node from the nearest start."""
    found = dict.fromkeys(starts, 0)
    queue = deque(found)
    while queue:
        here = queue.popleft()
        for other in graph.get(here, ()):
            if other not in found:
                found[other] = found[here] + 1
                queue.append(other)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_live_links_are_those_of_the_structured_overlay_and_cross_links_between_neighbours(seed: int) -> None:
    model = Model(seed)
    live = {
        frozenset((name, peer))
        for name in model.replicas.values() for peer in peers_of(model.overlay, name) if peer in model.replicas.values()
    }  # fmt: skip
    crossing = {
        frozenset((model.replicas[a, j], model.replicas[b, k]))
        for a, b in model.edges for j in range(3) for k in range(3)
    }  # fmt: skip
    assert live == model.links() | crossing
    n, regions = 3, len(model.regions)
    assert len(model.links()) == n * (regions - 1) + regions * n * (n - 1) // 2


@pytest.mark.parametrize("seed", range(12))
def test_a_publication_reaches_each_reader_once_by_a_shortest_way_in_its_plane(seed: int) -> None:
    model = Model(seed)
    readers = [name for name in model.readers if model.rng.random() < 0.7]
    site = model.overlay.certificate("site")
    admitted = Admitted(None, b"", site, SCOPE, 0, True, None, 0)  # type: ignore[arg-type]
    routing = {}
    for name in model.replicas.values():
        routes = Routes(model.overlay, name)
        routes.up = set(peers_of(model.overlay, name))
        routing[name] = PlaneRouting(routes, lambda scope, now: readers)
    copies, hops = Counter[str](), dict[str, int]()
    queue = deque((model.replicas[model.home, plane], 1) for plane in range(3))  # the gateway gives to all at home
    while queue:
        here, steps = queue.popleft()
        copies[here] += 1
        for peer in routing[here].peers((site.party_id, 7), admitted, 0, NOW) or ():
            if peer in routing:
                queue.append((peer, steps + 1))
            else:
                copies[peer] += 1
                hops[peer] = steps + 1
    graph = model.graph(model.links())
    near = distances(graph, [model.replicas[model.home, plane] for plane in range(3)])
    assert dict.fromkeys(readers, 1) == {name: copies[name] for name in copies if name not in routing}
    assert {reader: near[model.host(reader)] + 2 for reader in readers} == hops
    carrying = {node for reader in readers for node in _way(model, graph, near, model.host(reader))}
    assert {name for name in copies if name in routing and int(name[1]) != model.home} <= carrying
    assert all(count == 1 for count in copies.values())


def _way(model: Model, graph: Graph, near: dict[str, int], host: str) -> list[str]:
    """The nodes of the plane from the home region to a host."""
    way = [host]
    while near[way[-1]]:
        way.append(next(o for o in graph[way[-1]] if near[o] == near[way[-1]] - 1 and o[2] == host[2]))
    return way


def flooded(model: Model, up: set[str], author: str) -> Counter[str]:
    """How often each replica hears a subscription; its gateway tells all replicas of its region."""
    relays = {}
    for name in up:
        routes = Routes(model.overlay, name)
        routes.up = set(peers_of(model.overlay, name)) & (up | set(model.readers))
        relays[name] = StatementRelay(routes, RoutingTable(model.overlay))
    said: Any = SimpleNamespace(member=author, filter=SCOPE.filter)
    heard = Counter[str]()
    home = [model.replicas[model.readers[author], plane] for plane in range(3)]
    queue = deque((author, name) for name in home if name in up)
    while queue:
        sender, here = queue.popleft()
        heard[here] += 1
        if heard[here] == 1:  # what is no news goes no further
            queue += [(here, peer) for peer in relays[here].onwards(said, sender) if peer in relays]
    return heard


@pytest.mark.parametrize("seed", range(12))
def test_a_subscription_reaches_every_replica_once_as_a_flood_would(seed: int) -> None:
    model = Model(seed)
    author = model.rng.choice(sorted(model.readers))
    heard = flooded(model, set(model.replicas.values()), author)
    assert heard == Counter(dict.fromkeys(distances(model.graph(model.links()), [model.host(author)]), 1))


@pytest.mark.parametrize("seed", range(40))
def test_a_subscription_reaches_every_replica_though_one_of_each_region_is_away(seed: int) -> None:
    """One of three is the f that a region bears. A flood over all links reaches all others; so does the live way."""
    model = Model(seed)
    away = frozenset(model.replicas[region, model.rng.randrange(3)] for region in model.regions)
    author = model.rng.choice(sorted(model.readers))
    up = set(model.replicas.values()) - away
    crossing = {
        frozenset((model.replicas[a, j], model.replicas[b, k]))
        for a, b in model.edges
        for j in range(3)
        for k in range(3)
    }
    graph = model.graph(model.links() | crossing, away)
    starts = [name for name in up if int(name[1]) == model.readers[author]]
    heard = flooded(model, up, author)
    assert set(heard) == set(distances(graph, starts)) == up
    assert max(heard.values()) <= 3, "no storm: of a neighbour's region both that are there, of its own the other one"
