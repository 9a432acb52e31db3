"""The structured overlay: the paper's counts, and subscriptions that cross it in two steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.topology import PlanePlace, PlaneStep, RowTable, Scot, subscribe_all, unsubscribe_all
from keys.errors import OurFault

SIX = ((0, 1), (1, 2), (2, 3), (3, 4), (3, 5))
"""Regions a to f of the paper's example, as far as its text tells how they are joined: b lies between a and c."""


@st.composite
def scots(draw: st.DrawFn) -> Scot:
    regions = draw(st.integers(1, 8))
    edges = [(draw(st.integers(0, region - 1)), region) for region in range(1, regions)]
    return Scot(regions, edges, draw(st.integers(1, 5)))


def tables_of(scot: Scot) -> dict[PlanePlace, RowTable]:
    return {place: RowTable(scot, place) for place in scot.brokers}


def test_the_example_has_18_brokers_and_33_links() -> None:
    scot = Scot(6, SIX, 3)
    assert (len(scot.brokers), len(scot.tree_links), len(scot.region_links)) == (18, 15, 18)
    assert sorted(scot.neighbours(1)) == [0, 2]


@pytest.mark.parametrize("edges", [((0, 1),), ((0, 1), (1, 0)), ((0, 1), (2, 2)), ((0, 1), (1, 2), (2, 0))])
def test_what_is_no_tree(edges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(OurFault):
        Scot(3, edges, 2)


@given(scots(), st.data())
@settings(deadline=None)
def test_a_subscription_reaches_every_broker_once_and_leaves_no_trace(scot: Scot, data: st.DataObject) -> None:
    """Invariant: V - 1 messages, a row at each broker, the shortest tree; unsubscribing empties all."""
    tables, host = tables_of(scot), data.draw(st.sampled_from(scot.brokers))
    assert subscribe_all(scot, tables, "s", host) == len(scot.brokers) - 1
    for place, table in tables.items():
        row, steps, at = table.rows["s"], 0, place
        assert row.vector == 1 << host[1]
        while (hop := tables[at].rows["s"].last_hop) is not None:
            at, steps = hop, steps + 1
        assert (at, steps) == (host, scot.distance(place[0], host[0]) + (place[1] != host[1]))
    assert unsubscribe_all(tables, "s", host) == len(scot.brokers) - 1
    assert not any(table.rows for table in tables.values())
    assert unsubscribe_all(tables, "s", host) == 0


def test_secondary_neighbours_pass_nothing_on() -> None:
    table = RowTable(Scot(6, SIX, 3), (1, 0))
    assert table.enter_subscription("s", (1, 2), PlaneStep.SECONDARY, 0b100) == []
    assert table.enter_subscription("t", (0, 0), PlaneStep.PRIMARY, 0b001) == [
        ((2, 0), PlaneStep.PRIMARY), ((1, 1), PlaneStep.SECONDARY), ((1, 2), PlaneStep.SECONDARY)]  # fmt: skip


def test_targets_of_a_notification() -> None:
    """Subscribers of the example at (a,2), (c,2), (c,0), (c,1); publisher at (b,2)."""
    scot = Scot(6, SIX, 3)
    tables = tables_of(scot)
    for name, host in {"s4": (0, 2), "s3": (2, 2), "s1": (2, 0), "s2": (2, 1), "own": (1, 2)}.items():
        subscribe_all(scot, tables, name, host)
    found = tables[1, 2].targets(["s1", "s2", "s3", "s4", "own"])
    assert (found.is_local, sorted(found.regions), found.planes) == (True, [0, 2], 0b011)
    assert tables[1, 2].targets([]).planes == 0
