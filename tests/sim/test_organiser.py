"""An organiser that is not the owner: swaps under load, what stops them, and what a bad one can do."""

from __future__ import annotations

import random

import pytest

from bridge.document.trees import Phase
from tests.sim.organised_world import edge_set, edges_of, organised, running
from tests.sim.test_trees import PLAIN, SEALED, judge, load
from tests.sim.world import NOW


@pytest.mark.parametrize("scope", [PLAIN, SEALED], ids=["plain", "sealed"])
def test_what_spares_comes_into_force_everywhere_and_nothing_is_lost(scope):  # type: ignore[no-untyped-def]
    world = organised(scope)
    kernel = running(world, random.Random(1), (2, 3))
    traffic = load(kernel, world, 40, 5)
    trace = kernel.run(NOW + 60)
    for name, node in kernel.nodes.items():
        assert edges_of(node.overlay) == edge_set((1, 2), (3, 4), (4, 1)), name  # type: ignore[attr-defined]
        assert node.overlay.trees.phase is Phase.ALONE  # type: ignore[attr-defined]
    judge(trace, traffic, world)
