"""Tracing on recorded data: messages over links by hand."""

from __future__ import annotations

import pytest

from papers.real import tracking
from papers.real.tracking import ALIVE_S, crossed, followed, gossiped, overlay_on
from tests.papers.real.toy import recorded

STAR = [{1, 2, 3}, {0}, {0}, {0}]


def nothing(done: float) -> None:
    assert 0 <= done <= 1


def test_messages_of_a_star_by_hand() -> None:
    scot, distances = overlay_on(STAR)
    assert crossed(scot, 1, [2, 3, 3]) == 3
    assert crossed(scot, 1, [1]) == 0
    traces, pings = followed(scot, distances, 1, [2, 2, 0], 60.0, 2)
    assert traces == (2 + 60 / ALIVE_S) * 2
    assert pings == 2 * 60 * (2 + 2 + 1)
    assert gossiped(distances) == pytest.approx(4 * (3 * 1 * 2 + 6 * 2) / 12)


@pytest.mark.parametrize("name", ["trackers", "scale"])
def test_gossip_costs_the_same_whoever_looks(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(tracking, "BROKERS", (20, 60))
    figure = getattr(tracking, f"figure_{name}")(1, nothing, recorded=recorded(), runs=1)
    traces, pings, gossip = figure.series
    assert all(series.intervals for series in figure.series)
    assert all(ours < theirs for ours, theirs in zip(traces.ys, pings.ys, strict=True))
    if name == "trackers":
        assert len(set(gossip.ys)) == 1
        assert list(traces.ys) == sorted(traces.ys)
