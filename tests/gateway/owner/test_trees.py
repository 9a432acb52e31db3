"""When the number of the tree rises, how long members wait with it, and when the next change may be signed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document import OWNER_STEPS, TREE_GRACE_S, TREE_SETTLE_S, Organising, Overlay, Scope
from gateway.owner.description import Description, OrganiseEntry
from gateway.owner.trees import next_organising, next_tree
from gateway.trust import TrustError
from tests.sim.changing import regrown
from tests.sim.organised_world import BOSS, agreed, swap_on
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


ORGANISED = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1, BOSS: 2})
ORGANISED.overlay = ORGANISED.with_policy(organising=Organising(((1, 3),), organiser=BOSS, grace_s=5))


def swapped(now: float = NOW) -> Overlay:
    swap = swap_on(ORGANISED.overlay, ORGANISED, (1, 3), (1, 2), now)
    made = ORGANISED.overlay.hears(agreed(ORGANISED, swap, (1, 2, 3)), now)
    assert made.swaps == (swap,)
    return made


@pytest.mark.parametrize("described", [[[2, 1], [3, 2]], [[1, 2], [2, 3]]])
def test_what_the_organiser_changed_stays_while_the_description_says_what_it_said(described: list[list[int]]) -> None:
    there = swapped()
    edges, tree = next_tree(ROW, IDS, SCOPES, there, NOW + 3, described=described)
    assert (set(map(frozenset, edges)), tree) == ({frozenset((1, 3)), frozenset((2, 3))}, there.arrangement.change)
    edges, tree = next_tree(ROW, IDS, SCOPES, there, NOW + 100, described=described)
    assert (tree.number, tree.former) == (1, None), "and what is closed is left out"
    organise = OrganiseEntry(links=[("one", "three")], organiser=BOSS)
    potential = next_organising(ROW.model_copy(update={"organise": organise}), IDS, there, edges)
    assert potential is not None
    assert [set(link) for link in potential.links] == [{1, 2}], "what went may come back"


def test_another_tree_of_the_owners_has_a_number_beyond_the_organisers() -> None:
    there = swapped()
    with pytest.raises(TrustError, match="both trees are open until"):
        next_tree(ROW, IDS, SCOPES, there, NOW + 3)
    _, tree = next_tree(ROW, IDS, SCOPES, there, NOW + 100, described=[[1, 3], [2, 3]])
    assert (tree.number, tree.steps) == (1 + OWNER_STEPS, OWNER_STEPS)
    assert tree.former == there.arrangement.edges


def test_without_an_organiser_links_are_what_the_description_says() -> None:
    assert next_organising(ROW.model_copy(update={"organise": None}), IDS, None, ()) is None
    entry = OrganiseEntry(links=[("one", "three")])
    found = next_organising(ROW.model_copy(update={"organise": entry}), IDS, None, ((1, 3), (2, 3)))
    assert found is not None
    assert found.links == ((1, 3),)
