"""Scaling of the structured overlay: the routing that replicas run, beside a count of links by hand."""

from __future__ import annotations

import pytest

from bridge.topology import PlanePlace, Scot
from papers.experiments.draws import Draws
from papers.overlays.scaling import (
    BROKERS,
    PLANES,
    copies_by_regions,
    figure_scale,
    random_tree,
    static_copies,
)

ROW = Scot(4, ((0, 1), (1, 2), (2, 3)), 3)


def counted(scot: Scot, publisher: PlanePlace, readers: list[PlanePlace]) -> int:
    """One copy over every link of the tree on a way to a reader, plane by plane, and one to each other plane."""
    links: set[tuple[int, int, int]] = set()
    for region, plane in readers:
        here = region
        while here != publisher[0]:
            links.add((plane, here, scot.towards(here, publisher[0])))
            here = scot.towards(here, publisher[0])
    return len(links) + len({plane for _, plane in readers} - {publisher[1]})


def test_copies_along_a_row() -> None:
    assert static_copies(ROW, (0, 0), [(3, 0)]) == 3
    assert static_copies(ROW, (0, 0), [(3, 1), (2, 1)]) == 4
    assert static_copies(ROW, (1, 2), [(1, 2)]) == 0
    assert copies_by_regions(ROW, (0, 0), [(3, 1), (2, 1)]) == 27
    assert copies_by_regions(ROW, (1, 0), [(1, 2)]) == 0


@pytest.mark.parametrize("seed", range(20))
def test_static_routing_takes_each_link_on_a_way_once(seed: int) -> None:
    draws = Draws("test of scaling", seed)
    scot = random_tree(12, draws)
    publisher, *readers = [scot.brokers[draws.randrange(len(scot.brokers))] for _ in range(8)]
    assert static_copies(scot, publisher, readers) == counted(scot, publisher, readers)


def test_the_figure_reaches_1000_brokers_with_its_baselines() -> None:
    figure = figure_scale(1, lambda done: None, runs=1)
    assert [row[0] for row in figure.rows] == list(map(float, BROKERS))
    planes, regions, flooded = (series.ys for series in figure.series)
    assert all(a < b < c for a, b, c in zip(planes, regions, flooded, strict=True))
    assert planes[-1] < 4 * planes[0], "copies follow the depth of the tree, not the number of brokers"
    assert [row[6] for row in figure.rows] == [brokers - 1 for brokers in BROKERS]
    assert PLANES == 5
