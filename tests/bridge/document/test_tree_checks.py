"""What a tree must never be, with the reason in one line."""

from __future__ import annotations

from bridge.document.history import History
from bridge.document.policy import Scope
from bridge.document.tree_checks import KeyLoad, key_load, overlong, unjoined
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
    assert overlong(FIVE, LINE) == "", "keys of longer ways are wrapped"
    row = make_world(dict.fromkeys(range(1, 18), 3), [(1, n) for n in range(2, 18)], {"g": 1}).overlay
    assert overlong(row, Tree(1, [(n, n + 1) for n in range(2, 17)] + [(1, 10)], range(1, 18))) == ""
    assert "17 regions and 9 shares" in overlong(row, Tree(1, [(n, n + 1) for n in range(1, 17)], range(1, 18)))
    plain = make_world(dict.fromkeys(range(1, 6), 3), [(1, n) for n in range(2, 6)], {"g": 1}, [
        Scope("plant/#", Mode.PLAIN),
    ]).overlay  # fmt: skip
    assert overlong(plain, LINE) == ""
    wide = make_world({1: 11, 2: 11, 3: 11}, [(1, 2), (1, 3)], {"g": 1}, [Scope("open/#", Mode.PLAIN)]).overlay
    assert overlong(wide, wide.trees.newest) == ""


def test_a_history_keeps_no_wrapped_shares() -> None:
    kept = [Scope("plant/#", history=History(1, 16)), Scope("open/#")]
    row = make_world(dict.fromkeys(range(1, 6), 3), [(1, n) for n in range(2, 6)], {"g": 1}, kept).overlay
    assert overlong(row, STAR) == ""
    fault = overlong(row, LINE)
    assert (
        "path region-1 - region-2 - region-3 - region-4 - region-5 of scope plant/# has 5 regions and a history"
        in fault
    )
    assert "give it no history or shorten it" in fault


def test_the_load_of_a_wrapped_key_grows_by_the_regions_and_not_by_their_power() -> None:
    threes = [3] * 10
    assert key_load([3] * 4, [3] * 4, wrapped=False) == KeyLoad(4, 81, 0, 27)
    assert key_load(threes, threes, wrapped=True) == KeyLoad(10, 9, 72, 81)
    assert key_load([3], [3], wrapped=True) == KeyLoad(1, 3, 0, 0)
    assert "729 wraps" in key_load([9] * 11, [126] * 11, wrapped=True).fault
    assert "43797 combinations" in key_load([11, 13, 11, 13, 3], [462, 1716, 462, 1716, 3], wrapped=True).fault
    assert "shares a key" in key_load([3, 3, 3, 33, 33], [1] * 5, wrapped=True).fault
