"""A month of drawn failures: placement acts where it fails, liars or not, and more is available after it."""

from __future__ import annotations

from statistics import fmean

import pytest

from papers.overlays.placed import (
    DAYS,
    FIGURES,
    PATHS,
    TROUBLES,
    WINDOW_DAYS,
    PlacedMonth,
    Trouble,
    figure_month,
)


def test_a_month_follows_from_its_fields_and_is_the_same_before_anything_is_placed():
    once, again = (PlacedMonth(Trouble("one", 1, 1), 1, 0) for _ in range(2))
    days, mean = once.play(places=True)
    assert (days, mean) == again.play(places=True)
    assert once.steps == again.steps
    assert len(days) == DAYS
    assert days[:WINDOW_DAYS] == once.play(places=False)[0][:WINDOW_DAYS]
    assert all(0 <= day <= 1 for day in days)


def test_what_is_carried_is_what_counting_minutes_says():
    month = PlacedMonth(Trouble("all", 3, 0), 1, 3)
    begin, end = 0.0, 86_400.0
    exact = month._carried(month.regions, begin, end)
    weights, good, looked = month.weights, 0.0, 0
    for at in range(30, 86_400, 60):
        down = {r: sum(any(a <= at < b for a, b in month.away[n]) for n in names) for r, names in month.regions.items()}
        good += sum(w for w, nodes in zip(weights, PATHS, strict=True) if all(down[r] <= 1 for r in nodes))
        looked += 1
    assert exact == pytest.approx(good / looked / sum(weights), abs=0.005)
    assert exact < 1.0


@pytest.mark.parametrize("runs", [4, pytest.param(25, marks=pytest.mark.slow)])
def test_one_more_replica_where_it_fails_and_more_is_available(runs: int):
    rows = figure_month(1, lambda done: None, runs=runs).rows
    found = {(row[0], row[1]): row for row in rows}
    assert len(found) == len(TROUBLES)
    for (name, spares), row in found.items():
        before, placed = float(row[7]), float(row[8])
        if name != "nothing":
            assert float(row[3]) >= 90.0, "first steps, with a liar in each region"
            assert placed < before / 2, (name, spares)
    assert float(found["a region fails", 4.0][8]) < float(found["a region fails", 2.0][8])


def test_a_step_takes_one_spare_or_one_replica():
    month = PlacedMonth(Trouble("all", 3, 4), 1, 0)
    month.play(places=True)
    attached = sum(step.is_attach for _, step in month.steps)
    assert 1 <= attached <= 4
    assert len({day for day, _ in month.steps}) == len(month.steps), "one a day"
    assert fmean(step.at_end > step.before or not step.is_attach for _, step in month.steps) == 1


def test_the_figure_is_registered():
    assert FIGURES["month"] is figure_month
