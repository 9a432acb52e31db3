"""What a tree must never be, with the reason in one line."""

from __future__ import annotations

from bridge.document.policy import Scope
from bridge.document.tree_checks import overlong, unjoined
from bridge.document.trees import Tree
from keys.envelope import Mode
from tests.sim.world import make_world

FIVE = make_world(dict.fromkeys(range(1, 6), 3), [(1, n) for n in range(2, 6)], {"g": 1}, [Scope("plant/#")]).overlay
LINE = Tree(1, [(n, n + 1) for n in range(1, 5)], range(1, 6))
STAR = FIVE.trees.newest


def test_the_regions_of_a_scope_are_joined_among_themselves() -> None:
    apart = make_world(dict.fromkeys(range(1, 6), 3), [(1, n) for n in range(2, 6)], {"g": 1}, [
        Scope("plant/#", Mode.PLAIN, regions=(1, 3, 4)),
    ]).overlay  # fmt: skip
    assert unjoined(apart, STAR) == ""
    assert "region-2 lies between" in unjoined(apart, LINE)
    assert unjoined(FIVE, LINE) == ""


def test_no_way_of_a_sealed_scope_is_too_long() -> None:
    assert overlong(FIVE, STAR) == ""
    assert "5 regions" in overlong(FIVE, LINE)
    plain = make_world(dict.fromkeys(range(1, 6), 3), [(1, n) for n in range(2, 6)], {"g": 1}, [
        Scope("plant/#", Mode.PLAIN),
    ]).overlay  # fmt: skip
    assert overlong(plain, LINE) == ""
    wide = make_world({1: 11, 2: 11, 3: 11}, [(1, 2), (1, 3)], {"g": 1}, [Scope("open/#", Mode.PLAIN)]).overlay
    assert overlong(wide, wide.trees.newest) == ""
