"""Floods on real backbones: how far a forger gets, by hand."""

from __future__ import annotations

import pytest

from papers.real import flooding
from papers.real.flooding import flooded_links
from tests.papers.real.toy import recorded

ROW = [{1}, {0, 2}, {1, 3}, {2, 4}, {3}]


def test_a_flood_ends_at_the_first_honest_broker() -> None:
    assert flooded_links(ROW, frozenset({2}), 2) == 2
    assert flooded_links(ROW, frozenset({1, 2}), 2) == 3
    assert flooded_links(ROW, frozenset(range(5)), 0) == 4


def test_without_guards_all_links_carry_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flooding, "BROKERS", (20, 100))
    figure = flooding.figure_scale(1, lambda done: None, recorded=recorded(), runs=1)
    few, many, free = figure.series
    assert free.ys == (19.0, 99.0)
    assert few.ys[-1] < many.ys[-1] < free.ys[-1]
