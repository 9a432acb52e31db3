"""Latency over regions: what is timed is the real splitting of a real key, and what is not comes from the costs."""

from __future__ import annotations

from itertools import count, pairwise

import pytest

from papers.experiments.hops import figure_latency
from papers.experiments.loads import Costs
from tests.papers.experiments.helpers import ignore, line, rows

COSTS = Costs(parse_us=1, write_us=2, seal_us=3, sign_us=4, verify_us=5, open_us=6)


def test_a_known_key_costs_what_the_operations_do_and_a_fresh_one_what_is_timed_too() -> None:
    ticks = count()
    figure = figure_latency(
        1, ignore, clock=lambda: next(ticks) / 1000, costs=COSTS, counts=(3,), hops=(1, 2), rounds=2
    )
    one, two = rows(figure)
    assert one["known key ms"] == pytest.approx((3 + 4 + 8 + 6) / 1000)
    assert two["known key ms"] == pytest.approx((3 + 4 + 16 + 6) / 1000)
    # Each timed step is one tick: the publisher's split, a replica's for the second region, the reader's sum.
    assert one["fresh key ms"] == pytest.approx(one["known key ms"] + 2)
    assert two["fresh key ms"] == pytest.approx(two["known key ms"] + 3)
    assert [row["shares at the reader"] for row in (one, two)] == [3, 9]


def test_paths_that_no_overlay_may_have_are_left_out_and_latency_grows_with_regions() -> None:
    ticks = count()
    figure = figure_latency(
        1, ignore, clock=lambda: next(ticks) / 1000, costs=COSTS, counts=(3, 11), hops=(1, 2, 3), rounds=1
    )
    assert len(rows(figure, n=11.0)) == 2, "11 ** 3 shares are more than a reader may be made to hold"
    assert all(a < b for a, b in pairwise(line(figure, "fresh key, n = 3")))
