"""Static and dynamic routing: the paper's three cases message by message, and every congestion that can be drawn."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.topology import (
    IDLE,
    LinkLoad,
    PlanePlace,
    RoutedCopy,
    RowTable,
    Scot,
    detour,
    dynamic,
    planes_of,
    split_identifiers,
    static,
    subscribe_all,
)
from tests.bridge.topology.test_scot import SIX, scots

FULL = LinkLoad(50, 3.0)
A, B, C = 0, 1, 2
SUBSCRIBERS = [(A, 2), (C, 2), (C, 0), (C, 1)]
PUBLISHER = (B, 2)


def carried(
    scot: Scot,
    hosts: Collection[PlanePlace],
    publisher: PlanePlace,
    loads: Callable[[PlanePlace, PlanePlace], LinkLoad] | None,
) -> list[tuple[PlanePlace, PlanePlace, int]]:
    """Every copy of one notification, (from, to, vector), through real tables; `loads` None: statically."""
    tables = {place: RowTable(scot, place) for place in scot.brokers}
    for name, host in enumerate(hosts):
        subscribe_all(scot, tables, name, host)
    copies: list[tuple[PlanePlace, PlanePlace, int]] = []
    waiting: deque[tuple[PlanePlace, PlanePlace | None, int]] = deque([(publisher, None, -1)])
    while waiting:
        here, sender, vector = waiting.popleft()
        found = tables[here].targets(range(len(hosts)))
        before = sender[0] if sender is not None and sender[1] == here[1] else None
        regions = [other for other in found.regions if other != before]
        planes = found.planes if sender is None else vector
        if loads is None:
            made = static(here, regions, planes if sender is None else 0)
        else:
            made = dynamic(here, regions, planes, lambda to, here=here: loads(here, to))  # type: ignore[misc]
        for copy in made:
            copies.append((here, copy.to, copy.vector))
            assert len(copies) < 10_000, "it does not end"
            waiting.append((copy.to, here, copy.vector))
    return copies


@pytest.mark.parametrize(("congested", "messages", "vector"), [
    ({((B, 2), (B, 0))}, 6, 0b001),  # case I: 7b
    ({((B, 2), (B, 0)), ((B, 2), (B, 1))}, 4, 0b011),  # case II: 7c
    ({((B, 2), (B, 0)), ((B, 2), (B, 1)), ((B, 2), (A, 2)), ((B, 2), (C, 2)), ((B, 1), (B, 0)), ((C, 1), (C, 0))}, 5,
     0b001),  # case III: 7d
])  # fmt: skip
def test_the_papers_three_cases(congested: set[tuple[PlanePlace, PlanePlace]], messages: int, vector: int) -> None:
    def loads(here: PlanePlace, to: PlanePlace) -> LinkLoad:
        if (here, to) in congested:
            return LinkLoad(40 if to == (B, 1) else 50, 2.0)
        return LinkLoad(1, 1.0) if to == (A, 2) else IDLE  # as the paper presumes, the link to c is the freest

    scot = Scot(6, SIX, 3)
    assert len(carried(scot, SUBSCRIBERS, PUBLISHER, None)) == 6
    copies = carried(scot, SUBSCRIBERS, PUBLISHER, loads)
    assert len(copies) == messages
    assert {seen for here, _, seen in copies if here == PUBLISHER and seen} == {vector}


def test_in_case_i_the_way_to_the_far_subscriber_is_one_broker_longer() -> None:
    copies = carried(Scot(6, SIX, 3), SUBSCRIBERS, PUBLISHER, lambda *link: FULL if link == ((B, 2), (B, 0)) else IDLE)
    assert {(here, to) for here, to, _ in copies} >= {((B, 2), (B, 1)), ((B, 1), (B, 0)), ((B, 0), (C, 0))}


@given(scots(), st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_is_congested_every_host_gets_one_and_it_ends(scot: Scot, data: st.DataObject) -> None:
    """Invariant: each once, on at most m (diameter + 1) - 1 links, the vector on target links only."""
    place = st.sampled_from(scot.brokers)
    hosts, publisher = data.draw(st.lists(place, max_size=12)), data.draw(place)
    seed = data.draw(st.integers(0, 1 << 30))

    def loads(here: PlanePlace, to: PlanePlace) -> LinkLoad:
        drawn = hash((seed, here, to)) % 24
        return LinkLoad(drawn, 1.0 + drawn % 5)

    copies = carried(scot, hosts, publisher, loads)
    got = Counter(to for _, to, _ in copies)
    assert max(got.values(), default=1) == 1
    assert publisher not in got
    assert set(hosts) - {publisher} <= set(got)
    diameter = max(scot.distance(a, b) for a in range(scot.regions) for b in range(scot.regions))
    hops = {publisher: 0}
    for here, to, vector in copies:
        hops[to] = hops[here] + 1
        assert not vector >> to[1] & 1
    assert max(hops.values()) <= scot.planes * (diameter + 1) - 1
    assert len(copies) >= len(set(hosts) - {publisher})


@given(scots(), st.data())
@settings(max_examples=50, deadline=None)
def test_where_nothing_is_congested_dynamic_is_static(scot: Scot, data: st.DataObject) -> None:
    place = st.sampled_from(scot.brokers)
    hosts, publisher = data.draw(st.lists(place, max_size=6)), data.draw(place)
    assert carried(scot, hosts, publisher, lambda *link: IDLE) == carried(scot, hosts, publisher, None)


def test_the_freest_link_takes_the_vector() -> None:
    loads = {(0, 1): LinkLoad(50, 3.0), (0, 2): LinkLoad(3, 2.0), (0, 3): LinkLoad(5, 1.0), (1, 0): IDLE}
    assert dynamic((0, 0), [1], 0b1110, loads.__getitem__) == [
        RoutedCopy((1, 0)), RoutedCopy((0, 2)), RoutedCopy((0, 3), 0b0010)]  # fmt: skip


@given(scots(), st.data())
def test_a_detour_comes_back_to_the_plane_one_region_on(scot: Scot, data: st.DataObject) -> None:
    region = data.draw(st.integers(0, scot.regions - 1))
    if not scot.neighbours(region) or scot.planes < 2:
        return
    to, plane = data.draw(st.sampled_from(scot.neighbours(region))), data.draw(st.integers(0, scot.planes - 1))
    dead = data.draw(st.integers(0, scot.planes - 1))
    route = detour(scot, (region, plane), to, lambda place: IDLE, [dead])
    if scot.planes - len({plane, dead}) == 0:
        assert route == ()
        return
    first, second, last = route
    assert first[0] == region
    assert first[1] == second[1] not in (plane, dead)
    assert (second[0], last) == (to, (to, plane))
    assert detour(scot, (region, plane), to, lambda place: FULL) == ()


def test_identifiers_are_split_by_the_way_to_their_brokers() -> None:
    hops: dict[str, PlanePlace] = {"x": (0, 1), "y": (1, 0), "z": (0, 1)}
    assert split_identifiers(["x", "y", "z"], hops) == {(0, 1): ["x", "z"], (1, 0): ["y"]}
    assert planes_of(0b1010) == [1, 3]
