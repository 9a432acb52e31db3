"""How regions are joined by one change after another: the same at everybody who knows the changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document.arrangement import JUDGED_INTERVALS, Arrangement
from bridge.document.organise import Organising
from bridge.document.trees import TREE_SETTLE_S, TreeChange

ROW = ((1, 2), (2, 3), (3, 4))
SAID = Organising(((4, 1), (2, 4)), 30, 4, 10, 600)
FIRST = Arrangement(ROW, TreeChange(), SAID)
SINCE_MS = 1_000_000
CHANGED = FIRST.swapped((4, 1), (3, 2), SINCE_MS, 60)


def test_a_swap_gives_another_tree_and_what_went_is_a_potential_link() -> None:
    assert set(map(frozenset, CHANGED.edges)) == set(map(frozenset, ((1, 2), (3, 4), (4, 1))))
    assert CHANGED.change == TreeChange(1, SINCE_MS, TREE_SETTLE_S, 60, ROW)
    assert CHANGED.joins((1, 4))
    assert CHANGED.allows((2, 3))
    assert CHANGED.allows((4, 2))
    assert not CHANGED.allows((1, 4))
    assert not CHANGED.joins((2, 3))
    assert FIRST.swapped((4, 1), (3, 2), SINCE_MS, 60, 5).change.steps == 5
    nobody = replace(FIRST, organising=None)
    assert not nobody.allows((1, 4))
    assert nobody.swapped((4, 1), (2, 3), 0, 60).organising is None


def test_the_digest_is_of_name_number_and_edges_whatever_their_order() -> None:
    assert FIRST.digest("a") == replace(FIRST, edges=((4, 3), (2, 1), (3, 2)), organising=None).digest("a")
    others = {FIRST.digest("b"), CHANGED.digest("a"), replace(FIRST, change=TreeChange(1)).digest("a")}
    assert FIRST.digest("a") not in others
    assert len(others) == 3


def test_when_the_tree_rests() -> None:
    assert FIRST.rests == (0.0, 0.0)
    judged_at = SINCE_MS / 1000 + TREE_SETTLE_S + 60 + JUDGED_INTERVALS * 30
    assert CHANGED.rests == (judged_at, SINCE_MS / 1000 + 600)
    hasty = replace(CHANGED, organising=replace(SAID, dwell_s=0))
    assert hasty.rests == (judged_at, judged_at)
    assert replace(CHANGED, organising=None).rests == (0.0, 0.0)


def test_a_way_back_before_the_tree_has_rested_bars_the_link_and_no_other_does() -> None:
    assert CHANGED.undone_by((2, 3), (1, 4))
    assert not CHANGED.undone_by((2, 4), (1, 4))
    before_ms, after_ms = SINCE_MS + 300_000, SINCE_MS + 600_000
    back = CHANGED.swapped((2, 3), (1, 4), before_ms, 60)
    assert back.organising is not None
    assert [(set(bar.link), bar.until_ms) for bar in back.organising.bars] == [({1, 4}, before_ms + 1_200_000)]
    for other in (CHANGED.swapped((2, 3), (1, 4), after_ms, 60), CHANGED.swapped((2, 4), (1, 4), before_ms, 60)):
        assert other.organising is not None
        assert other.organising.bars == ()


@pytest.mark.parametrize("count", [1, 3])
def test_each_time_it_is_barred_for_twice_as_long(count: int) -> None:
    arrangement, at_ms = FIRST, SINCE_MS
    for times in range(1, count + 1):
        arrangement = arrangement.swapped((1, 4), (2, 3), at_ms, 60).swapped((2, 3), (1, 4), at_ms + 200_000, 60)
        assert arrangement.organising is not None
        (bar,) = arrangement.organising.bars
        assert (bar.times, bar.until_ms) == (times, at_ms + 200_000 + 600_000 * 2**times)
        at_ms = bar.until_ms
