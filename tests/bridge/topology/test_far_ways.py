"""Ways to replicas of other regions: each once, and the region that is read in (docs/protocol-options.md §12.6)."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from bridge.document import History, Scope
from bridge.topology import FarWays, keeping
from tests.sim.world import World, make_world


def row(sizes: tuple[int, ...], kept: tuple[int, ...] = ()) -> World:
    scope = Scope("plant/#", history=History(7, 100, kept))
    edges = [(region, region + 1) for region in range(1, len(sizes))]
    return make_world(dict(enumerate(sizes, 1)), edges, {"late": len(sizes)}, [scope])


@pytest.mark.parametrize("sizes", [(3, 3), (3, 5), (3, 3, 3), (3, 5, 3), (3, 3, 5), (3, 3, 3, 3)])
def test_each_way_has_a_number_and_neighbours_begin_elsewhere(sizes: tuple[int, ...]) -> None:
    world = row(sizes)
    ways = FarWays(world.overlay, len(sizes), 1)
    found = [ways.way("r1a", turn) for turn in range(ways.count)]
    passing = [world.overlay.views[region].members for region in range(len(sizes), 1, -1)]
    assert sorted(found) == sorted((*names, "r1a") for names in product(*passing))
    assert all(one[0] != other[0] for one, other in pairwise(found))


def test_a_history_is_read_where_it_is_whole() -> None:
    sizes = (3, 3, 3, 3)
    scope = [row(sizes, kept).overlay.policy.scopes[0] for kept in ((), (4,), (1, 4), (1, 2), (3,), (2, 3))]
    overlay = row(sizes).overlay
    assert [keeping(overlay, "late", each) for each in scope] == [4, 4, 4, 2, 3, 3]


def test_of_two_that_are_equally_near_the_lower_number_is_read() -> None:
    scope = Scope("plant/#", history=History(7, 100, (1, 3)))
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"late": 2}, [scope])
    assert keeping(world.overlay, "late", world.overlay.policy.scopes[0]) == 1
