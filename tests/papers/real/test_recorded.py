"""Recorded data as experiments take it: ways, trees and parts of networks by hand."""

from __future__ import annotations

import pytest

from papers.experiments.draws import Draws
from papers.overlays.transitstub import ways
from papers.real.recorded import (
    Weighted,
    distance_km,
    hops_from,
    part_of,
    shortest_tree,
)
from tests.papers.real.toy import SIDE, grid

LAST = SIDE * SIDE - 1


def test_places_are_as_far_apart_as_on_a_globe() -> None:
    assert distance_km((0.0, 0.0), (0.0, 90.0)) == pytest.approx(10_007.5, abs=1)
    assert distance_km((-73.78, 40.65), (-118.4, 33.93)) == pytest.approx(3_974, abs=15)
    assert grid("a").nearest(4.9, 0.2) == 5 * SIDE


def test_shortest_ways_and_their_tree() -> None:
    network = grid("a")
    km, before = ways(network.links, 0)
    assert km[LAST] == 200.0 * (SIDE - 1)
    assert before[0] == 0
    tree = shortest_tree(network.links, 0)
    assert sum(map(len, tree)) == 2 * (len(network) - 1)
    hops = hops_from(tree, 0)
    assert [100.0 * hop for hop in hops] == km
    assert hops_from(tree, LAST)[0] == hops[LAST]


def test_a_longer_way_over_cheap_links_is_shorter() -> None:
    km, before = ways((((1, 10.0), (2, 1.0)), ((0, 10.0), (2, 1.0)), ((0, 1.0), (1, 1.0))), 0)
    assert km == [0.0, 2.0, 1.0]
    assert before == [0, 2, 0]


@pytest.mark.parametrize("seed", range(5))
def test_a_part_of_a_network_is_in_one_piece(seed: int) -> None:
    part = part_of(grid("a"), 10, Draws("part", seed))
    assert len(part) == len(part.links) == 10
    assert min(hops_from(shortest_tree(part.links, 0), 0)) == 0, "all are reached"
    assert all((at, km) in part.links[there] for at, near in enumerate(part.links) for there, km in near)


def test_things_are_drawn_by_their_weight() -> None:
    draws, weighted = Draws("weights"), Weighted({(0, 1): 1.0, (1, 0): 3.0, (2, 2): 0.0})
    found = [weighted.draw(draws) for _ in range(2_000)]
    assert 0.70 < found.count((1, 0)) / len(found) < 0.80
    assert (2, 2) not in found
