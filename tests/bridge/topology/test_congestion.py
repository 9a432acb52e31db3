"""The congestion element, window by window."""

from __future__ import annotations

import math

import pytest

from bridge.topology.congestion import IDLE, THRESHOLD, WINDOW_S, LinkLoad, LinkStatus


def test_the_element_is_of_the_last_whole_window() -> None:
    link = LinkStatus()
    for _ in range(6):
        link.count_entered(0.01)
    link.count_left(0.02)
    link.count_left(0.03)
    assert link.load_at(0.04) == LinkLoad(4, 1.0)
    assert link.load_at(WINDOW_S) == LinkLoad(4, 3.0)
    assert link.load_at(2 * WINDOW_S) == LinkLoad(4, 1.0)


def test_where_something_came_and_nothing_left_it_is_infinite() -> None:
    link = LinkStatus()
    link.count_entered(0.0)
    assert link.load_at(WINDOW_S).element == math.inf
    assert link.load_at(5 * WINDOW_S).element == 1.0


@pytest.mark.parametrize(("queued", "free"), [(0, True), (THRESHOLD - 1, True), (THRESHOLD, False)])
def test_a_link_is_free_below_the_threshold(queued: int, free: bool) -> None:
    assert LinkLoad(queued, 2.0).is_free is free


def test_the_smaller_element_is_freer_then_the_shorter_queue() -> None:
    loads = [LinkLoad(9, 1.0), LinkLoad(0, 2.0), LinkLoad(3, 1.0), IDLE]
    assert min(loads, key=lambda load: load.rank) is IDLE
    assert sorted(loads, key=lambda load: load.rank)[1:] == [LinkLoad(3, 1.0), LinkLoad(9, 1.0), LinkLoad(0, 2.0)]
