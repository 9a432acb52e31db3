"""A change of the tree: its steps, what it names, and what may follow what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document.overlay import Overlay, OverlayError
from bridge.document.trees import NUMBERS, Phase, Tree, TreeChange, Trees
from keys.errors import BadFrame, Expired, UnknownView
from keys.frames import Reader
from tests.sim.changing import regrown
from tests.sim.world import NOW, make_world

ROW = ((1, 2), (2, 3))
CHANGE = TreeChange(7, 1_000, 2, 60, ROW)
TREES = Trees.at_start(CHANGE, ((1, 3), (2, 3)), {1, 2, 3})


def test_ways_lead_along_edges() -> None:
    tree = Tree(1, ROW, {1, 2, 3})
    assert tree.joined
    assert tree.path(1, 3) == (1, 2, 3)
    assert tree.path(2, 2) == (2,)
    assert tree.path(1, 9) == tree.path(9, 1) == ()
    assert tree.neighbours(2) == (1, 3)
    assert tree.neighbours(9) == ()


@pytest.mark.parametrize("edges", [((1, 2),), ((1, 2), (2, 1)), ((1, 2), (2, 3), (3, 1)), ((1, 2), (3, 3)), ()])
def test_what_is_no_tree_is_seen(edges: tuple[tuple[int, int], ...]) -> None:
    assert not Tree(1, edges, {1, 2, 3}).joined


def test_a_change_settles_is_in_force_and_alone() -> None:
    steps = [(1.0, Phase.SETTLING), (2.9, Phase.SETTLING), (3.0, Phase.IN_FORCE), (62.9, Phase.IN_FORCE)]
    for now, phase in (*steps, (63.0, Phase.ALONE)):
        assert TREES.phase_at(now) is phase
    assert TREES.next_change() == 3.0
    in_force = replace(TREES, phase=Phase.IN_FORCE)
    assert in_force.phase_at(1.0) is Phase.IN_FORCE, "a clock that was set back brings nothing back"
    assert in_force.next_change() == 63.0
    assert replace(TREES, phase=Phase.ALONE).next_change() is None
    assert [TREES.in_force.number, in_force.in_force.number] == [6, 7]
    assert [[tree.number for tree in each.open] for each in (TREES, in_force)] == [[7, 6], [7, 6]]
    assert [tree.number for tree in replace(TREES, phase=Phase.ALONE).open] == [7]


def test_where_nothing_came_before_there_is_one_tree() -> None:
    first = Trees.at_start(TreeChange(), ROW, {1, 2, 3})
    assert (first.phase, first.open, first.in_force) == (Phase.ALONE, (first.newest,), first.newest)
    assert first.phase_at(0.0) is Phase.ALONE
    at_once = Trees.at_start(replace(CHANGE, settle_s=0), ROW, {1, 2, 3})
    assert at_once.in_force is at_once.newest
    grown = Trees.at_start(TreeChange(1, 0, 0, 60, ()), ((1, 2),), {1, 2})
    assert grown.former is not None
    assert grown.former.path(1, 1) == (1,)
    assert grown.former.path(1, 2) == ()


def test_a_number_is_open_to_come_or_closed() -> None:
    assert TREES.tree_numbered(7) is TREES.newest
    assert TREES.tree_numbered(6) is TREES.former
    with pytest.raises(UnknownView):
        TREES.tree_numbered(8)
    with pytest.raises(Expired):
        TREES.tree_numbered(5)
    with pytest.raises(Expired):
        replace(TREES, phase=Phase.ALONE).tree_numbered(6)


@pytest.mark.parametrize("newest", [0, 7, 255, 256, 1000])
def test_a_publications_byte_means_the_nearest_number(newest: int) -> None:
    trees = Trees.at_start(TreeChange(newest), ROW, {1, 2, 3})
    for number in range(max(0, newest - NUMBERS // 2), newest + NUMBERS // 2):
        assert trees.number_of(number % NUMBERS) == number


def test_numbers_count_on_and_one_number_is_one_tree() -> None:
    def trees(number: int, edges: tuple[tuple[int, int], ...]) -> Trees:
        return Trees.at_start(TreeChange(number), edges, {1, 2, 3})

    old = trees(4, ROW)
    assert trees(4, ((3, 2), (2, 1))).follows(old)
    assert trees(5, ROW).follows(old)
    assert not trees(4, ((1, 3), (2, 3))).follows(old)
    assert not trees(3, ROW).follows(old)


def test_a_change_survives_its_bytes() -> None:
    for change in (CHANGE, replace(CHANGE, former=()), replace(CHANGE, former=None)):
        assert TreeChange.read(Reader(change.encode())) == change
    with pytest.raises(BadFrame):
        TreeChange.read(Reader(CHANGE.encode()[:-1]))
    assert CHANGE.followed_by(((1, 2),), 9, 1, 5) == TreeChange(8, 9, 1, 5, ((1, 2),))
    assert CHANGE.closes_ms == 63_000


WORLD = make_world({1: 3, 2: 3, 3: 3}, ROW, {"site": 1})


def test_a_region_between_others_is_not_removed_in_one_step() -> None:
    with pytest.raises(OverlayError, match="lay between others"):
        regrown(WORLD, WORLD.overlay, ((1, 3),), NOW, without=2)
    apart = regrown(WORLD, WORLD.overlay, ((1, 3), (1, 2)), NOW)
    later = regrown(WORLD, apart, ((1, 3),), NOW + 100, without=2)
    assert later.trees.former is not None
    assert later.trees.former.path(1, 3) == (1, 3)


def test_who_begins_late_begins_where_the_others_are() -> None:
    newer = regrown(WORLD, WORLD.overlay, ((1, 3), (2, 3)), NOW, 2, 5)
    document = newer.to_document()
    for after_s, phase in ((1, Phase.SETTLING), (3, Phase.IN_FORCE), (8, Phase.ALONE)):
        assert Overlay.from_document(document, int((NOW + after_s) * 1000)).trees.phase is phase
    late = newer.following(WORLD.overlay, NOW + 100)
    assert late.trees.phase is Phase.SETTLING, "what comes meanwhile goes on along the former tree"
    assert late.next_closing == NOW + 102
    assert late.as_of(NOW + 102).path(1, 2) == (1, 3, 2)
    assert late.as_of(NOW + 107).neighbours(1) == (3,)
