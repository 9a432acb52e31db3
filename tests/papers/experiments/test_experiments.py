"""Cells run one after the other: results in order, and progress that ends at 1."""

from __future__ import annotations

from papers.experiments.experiments import mean_of, one_by_one


def test_cells_are_measured_in_order_and_progress_is_told() -> None:
    told: list[float] = []
    assert one_by_one(lambda cell: cell * 10)([1, 2, 3, 4], told.append) == [10, 20, 30, 40]
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_nothing_to_run_is_no_result() -> None:
    assert one_by_one(str)([], lambda done: None) == []


def test_one_run_has_no_mean() -> None:
    assert [mean_of(count, "run") for count in (1, 3)] == ["one run", "mean of 3 runs"]
