"""Figures of paper C: exact where they are counts, of the right shape where they are played."""

from __future__ import annotations

from collections.abc import Sequence

from papers.experiments.experiments import Figure
from papers.overlays.octopis import (
    ALGORITHMS,
    figure_7,
    figure_9a,
    figure_9c,
    figure_10b,
    figure_11,
    figure_links,
)


def quiet(done: float) -> None:
    assert 0 <= done <= 1


def column(figure: Figure, name: str) -> list[float | str]:
    return [row[figure.columns.index(name)] for row in figure.rows]


def test_33_links_and_74_against_366_messages() -> None:
    figure = figure_links(1, quiet)
    assert column(figure, "links") == [33, 220]
    assert column(figure, "two steps") == [17, 74]
    assert column(figure, "flooded")[1] == 366
    assert column(figure, "vector of the last plane")[0] == "100"


def test_messages_of_the_three_cases() -> None:
    figure = figure_7(1, quiet)
    assert [f"{snr}:{dnr}" for snr, dnr in zip(column(figure, "SNR"), column(figure, "DNR"), strict=True)] == [
        "6:6", "6:4", "6:5"] == column(figure, "paper")  # fmt: skip


def test_subscriptions() -> None:
    figure = figure_9a(1, quiet, runs=1)
    assert column(figure, "clustered")[0] == 74
    assert column(figure, "difference")[0] == "-79.8%"


def _grow(figure: Figure, what: str, points: Sequence[float]) -> bool:
    first = [row[figure.columns.index(what)] for row in figure.rows if row[1] == "SNR"]
    return len(first) == len(points) and first == sorted(first, key=float)


def test_matching_grows_with_subscribers_and_dynamic_routing_has_nothing_to_do() -> None:
    figure = figure_9c(1, quiet, runs=1, share=0.001, subscribers=(500, 2_000))
    assert _grow(figure, "matching ms a notification", (500, 2_000))
    rows = {(row[0], row[1]): row[2:] for row in figure.rows}
    assert all(rows[x, "SNR"] == rows[x, "DNR"] for x in (500.0, 2_000.0))
    assert {row[1] for row in figure.rows} == set(ALGORITHMS)


def test_publishers() -> None:
    figure = figure_10b(1, quiet, runs=1, share=0.002, publishers=(20, 40))
    assert len(figure.rows) == 6


def test_a_burst() -> None:
    figure = figure_11(1, quiet, runs=1, share=0.002, rates=(100_000,))
    assert figure.title == "A burst of 100,000 a minute, 0.2 % of the paper's notifications"
    assert [row[1] for row in figure.rows] == list(ALGORITHMS)
    assert len(figure.series) == 3
