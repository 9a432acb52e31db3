"""When the number of the tree rises, how long members wait with it, and when the next change may be signed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document import TREE_GRACE_S, TREE_SETTLE_S, Scope
from gateway.owner.description import Description
from gateway.owner.trees import next_tree
from gateway.trust import TrustError
from tests.sim.changing import regrown
from tests.sim.world import NOW, make_world

IDS = {"one": 1, "two": 2, "three": 3}
WORLD = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1})
SCOPES = WORLD.overlay.policy.scopes


def wanted(*edges: tuple[str, str]) -> Description:
    return Description.model_construct(edges=list(edges))


ROW = wanted(("one", "two"), ("two", "three"))
OTHER = wanted(("one", "three"), ("two", "three"))


def test_the_first_is_number_0() -> None:
    edges, tree = next_tree(ROW, IDS, SCOPES, None, NOW)
    assert edges == ((1, 2), (2, 3))
    assert (tree.number, tree.former) == (0, None)


def test_nothing_changes_where_nothing_did() -> None:
    turned = wanted(("three", "two"), ("two", "one"))
    edges, tree = next_tree(turned, IDS, SCOPES, WORLD.overlay, NOW)
    assert edges == ((1, 2), (2, 3)), "in the order that was signed"
    assert tree == WORLD.overlay.policy.tree


def test_other_edges_are_another_tree_that_settles() -> None:
    edges, tree = next_tree(OTHER, IDS, SCOPES, WORLD.overlay, NOW)
    assert edges == ((1, 3), (2, 3))
    assert (tree.number, tree.former) == (1, ((1, 2), (2, 3)))
    assert (tree.settle_s, tree.grace_s, tree.since_ms) == (TREE_SETTLE_S, TREE_GRACE_S, int(NOW * 1000))


def test_the_owner_says_how_long_the_former_stays_open() -> None:
    _, tree = next_tree(OTHER, IDS, SCOPES, WORLD.overlay, NOW, 5)
    assert (tree.settle_s, tree.grace_s) == (TREE_SETTLE_S, 5)
    assert next_tree(ROW, IDS, SCOPES, WORLD.overlay, NOW, 5)[1] == WORLD.overlay.policy.tree


@pytest.mark.parametrize("what", ["region", "scope"])
def test_where_regions_change_it_does_not(what: str) -> None:
    scopes = SCOPES if what == "region" else (replace(SCOPES[0], regions=(1, 2)), *SCOPES[1:])
    ids = {"one": 1, "two": 2} if what == "region" else IDS
    _, tree = next_tree(wanted(("one", "two")) if what == "region" else ROW, ids, scopes, WORLD.overlay, NOW)
    assert (tree.number, tree.settle_s) == (1, 0)
    assert next_tree(ROW, IDS, (*SCOPES, Scope("new/#", regions=(1,))), WORLD.overlay, NOW)[1].number == 0


def test_one_change_at_a_time_and_the_former_is_left_out_when_it_is_closed() -> None:
    changed = regrown(WORLD, WORLD.overlay, ((1, 3), (2, 3)), NOW, TREE_SETTLE_S, TREE_GRACE_S)
    closes = NOW + TREE_SETTLE_S + TREE_GRACE_S
    with pytest.raises(TrustError, match="both trees are open until"):
        next_tree(ROW, IDS, SCOPES, changed, closes - 1)
    assert next_tree(OTHER, IDS, SCOPES, changed, closes - 1)[1] == changed.policy.tree
    _, alone = next_tree(OTHER, IDS, SCOPES, changed, closes)
    assert (alone.number, alone.former) == (1, None)
    assert next_tree(ROW, IDS, SCOPES, changed, closes)[1].number == 2
