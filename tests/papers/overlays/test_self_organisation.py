"""Figures of paper D: the examples exact, the rest small, whole and the same from the same seed."""

from __future__ import annotations

import pytest

from papers.overlays import self_organisation
from papers.overlays.self_organisation import (
    ALPHAS,
    ETAS,
    FIGURES,
    TICKS,
    TreeCell,
    figure_2,
    figure_4,
    figure_5,
    figure_6,
    measure,
)


def test_the_examples_are_exact() -> None:
    figure = figure_2(0, lambda done: None)
    assert figure.rows == (("B1 wants nothing", 100.0, 80.0), ("B1 wants nine of ten", 80.0, 107.0))


def test_a_cell_follows_from_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_organisation, "BROKERS", 20)
    cell = TreeCell("CI", 1, 0, 1_000, hops=2)
    once = measure(cell)
    assert once == measure(cell)
    assert once["swaps"] > [0.0]
    redrawn = measure(TreeCell("static", 1, 0, 3_000, redrawn=True))
    assert len(set(redrawn["delivering"])) == 3
    assert redrawn["swaps"] == [0.0] * 3


def test_figures_are_whole() -> None:
    fakes: list[TreeCell] = []

    def sweep(cells: list[TreeCell], progress: object) -> list[dict[str, list[float]]]:
        fakes.extend(cells)
        return [
            {"delivering": [2.0, 1.0], "telling": [0.5, 0.5], "asking": [0.25, 0.25], "swaps": [1.0, 0.0]}
            for _ in cells
        ]

    for name, function in FIGURES.items():
        if name not in ("2", "optimum"):
            figure = function(1, lambda done: None, tree_sweep=sweep, runs=2, ticks=6_000)
            assert figure.number == name
            assert all(len(row) == len(figure.columns) for row in figure.rows)
            assert all(len(series.xs) == len(series.ys) > 0 for series in figure.series)
    assert {cell.hops for cell in fakes} >= set(ETAS)
    assert {round(cell.p_max / 20, 1) for cell in fakes} >= set(ALPHAS)


def test_ci_is_called_lowest_where_it_is() -> None:
    def sweep(cells: list[TreeCell], progress: object) -> list[dict[str, list[float]]]:
        low = {"CI": 1.0}
        return [
            {"delivering": [low.get(cell.heuristic, 2.0)] * 12, "telling": [0.0] * 12, "asking": [0.0] * 12,
             "swaps": [0.0] * 12}
            for cell in cells
        ]  # fmt: skip

    rows = {row[0]: row for row in figure_4(1, lambda done: None, tree_sweep=sweep, runs=1, ticks=12_000).rows}
    assert rows["CI"][4] == 100.0
    assert rows["CI"][2] == 50.0
    assert rows["static"][2] == 100.0


def quiet(done: float) -> None: ...


FULL = pytest.mark.slow, pytest.mark.timeout(7_200)


@pytest.mark.parametrize(("brokers", "runs", "ticks", "least"), [
    pytest.param(20, 1, 12_000, 70, marks=pytest.mark.slow),  # a short run leaves out less than 5,000 ticks
    pytest.param(100, 25, TICKS, 90, marks=FULL),
])  # fmt: skip
def test_ci_is_lowest_from_5000_ticks_after_a_change(
    brokers: int, runs: int, ticks: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_organisation, "BROKERS", brokers)
    rows = {row[0]: row for row in figure_4(1, quiet, runs=runs, ticks=ticks).rows}
    assert float(rows["CI"][4]) >= least, "of samples of the mean"
    assert float(rows["CI"][5]) >= least, "of samples of each network"
    assert all(float(rows[name][2]) < 100 for name in ("CI", "ℓMST", "ℓMIT")), "below the static tree"


@pytest.mark.parametrize(("brokers", "runs", "ticks"), [(20, 1, 6_000), pytest.param(100, 25, TICKS, marks=FULL)])
def test_four_hops_are_enough_and_cost_little(
    brokers: int, runs: int, ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_organisation, "BROKERS", brokers)
    rows = {row[0]: row for row in figure_5(1, quiet, runs=runs, ticks=ticks).rows}
    assert float(rows[4][1]) < float(rows["static"][1])
    assert float(rows[4][5]) < 3, "requests and changes, % of the cost"
    if runs > 1:
        assert min(ETAS, key=lambda hops: float(rows[hops][1])) in (3, 4, 5)


@pytest.mark.parametrize(("brokers", "runs", "ticks", "alphas"), [
    (20, 1, 9_000, (0.0, 1.0)), pytest.param(100, 3, TICKS, ALPHAS, marks=FULL),
])  # fmt: skip
def test_ci_saves_no_less_than_the_others_whatever_costs(
    brokers: int, runs: int, ticks: int, alphas: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_organisation, "BROKERS", brokers)
    monkeypatch.setattr(self_organisation, "ALPHAS", alphas)
    for alpha, ci, mst, mit in figure_6(1, quiet, runs=runs, ticks=ticks).rows:
        assert float(ci) >= max(float(mst), float(mit)), alpha
