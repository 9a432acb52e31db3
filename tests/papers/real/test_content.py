"""Content routing on recorded data: copies beside those of the routing that replicas run."""

from __future__ import annotations

import pytest

from papers.experiments.draws import Draws
from papers.overlays.scaling import copies_by_regions, static_copies
from papers.real import content
from papers.real.content import NAMES, ContentOverlay, Flights, Notification, Quotes, Subscriber, wanted_by
from tests.papers.real.toy import grid, recorded


def nothing(done: float) -> None:
    assert 0 <= done <= 1


@pytest.mark.parametrize("seed", range(10))
def test_copies_are_those_of_the_live_functions(seed: int) -> None:
    draws = Draws("copies", seed)
    overlay = ContentOverlay.on(grid("a", 4), 3, draws)
    publisher, *hosts = [draws.choice(overlay.scot.brokers) for _ in range(7)]
    planes, regions, flooded, listed = overlay.copies(publisher, frozenset(hosts))
    assert planes == static_copies(overlay.scot, publisher, hosts)
    assert regions == copies_by_regions(overlay.scot, publisher, hosts)
    assert (
        flooded == 2 * (len(overlay.scot.tree_links) + len(overlay.scot.region_links)) - len(overlay.scot.brokers) + 1
    )
    assert len({host for host in hosts if host != publisher}) <= listed <= flooded
    assert [sum(load.values()) for load in overlay.load] == [planes, regions, flooded, listed]


def test_who_wants_what() -> None:
    here, there = (0, 0), (1, 1)
    hosts = wanted_by([Subscriber(here, ("ABC", 5.0)), Subscriber(here, ("ABC", 9.0)), Subscriber(there, ("X", 0.0))])
    assert hosts(Notification(0, "ABC", 5.0)) == {here}
    assert hosts(Notification(0, "ABC", 4.9)) == frozenset()
    assert hosts(Notification(0, "X", 1.0)) == {there}


def test_subscribers_are_drawn_from_the_data() -> None:
    draws, overlay = Draws("drawn"), ContentOverlay.on(grid("a"), 2, None)
    flights = Flights(recorded(), grid("a"))
    targets = {flight.target for flight in flights.flights}
    assert {flights.subscriber(overlay.scot, draws).wish[0] for _ in range(100)} == targets
    quotes = Quotes(recorded(), 36, draws)
    subscribers = [quotes.subscriber(overlay.scot, draws) for _ in range(200)]
    said = [quotes.notification(draws) for _ in range(200)]
    wanted = sum(bool(wanted_by([one])(note)) for one, note in zip(subscribers, said, strict=True))
    assert 60 < wanted < 140, "half of the quotes of its ticker"


@pytest.mark.parametrize("name", ["subscribers", "quotes", "publishers", "scale"])
def test_a_figure_has_its_baselines_and_intervals(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for bound, value in (("SUBSCRIBERS", (5, 100)), ("PUBLISHERS", (2, 9)), ("BROKERS", (50, 100)), ("DRAWN", 3)):
        monkeypatch.setattr(content, bound, value)
    figure = getattr(content, f"figure_{name}")(1, nothing, recorded=recorded(), runs=1)
    assert [series.name for series in figure.series] == list(NAMES[: 3 if name == "scale" else 4])
    assert all(series.intervals for series in figure.series)
    planes, regions, flooded = (series.ys for series in figure.series[:3])
    assert all(a < min(b, c) for a, b, c in zip(planes, regions, flooded, strict=True))
    assert all(len(row) == len(figure.columns) for row in figure.rows)
