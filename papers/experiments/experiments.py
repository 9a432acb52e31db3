"""The result of an experiment: a figure as series for a plot and rows for a table, with the paper's numbers.

An experiment is a function `(seed, progress) -> Figure`; it draws every number from `random.Random`-like sources that
its caller seeds. Tables are printed by the command line, pictures drawn by `papers.simulating.pictures`: nothing
here does either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

Progress: TypeAlias = Callable[[float], None]
"""Function called now and then with the fraction that is done, 0 to 1."""
C = TypeVar("C")
R = TypeVar("R")


def one_by_one(measure: Callable[[C], R]) -> Callable[[Sequence[C], Progress], list[R]]:
    """Returns a sweep running the cells of an experiment in turn, in this process.

    The sweep gives their results in order.
    """

    def run(cells: Sequence[C], progress: Progress) -> list[R]:
        found = []
        for cell in cells:
            found.append(measure(cell))
            progress(len(found) / len(cells))
        return found

    return run


def mean_of(count: int, what: str) -> str:
    """Returns the words for the mean of so many things, named in the singular; one thing has no mean."""
    return f"mean of {count} {what}s" if count > 1 else f"one {what}"


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or a set of bars, of a figure."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    intervals: tuple[float, ...] = ()
    """By point half of the 95 % confidence interval of its mean; none if nothing was drawn."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a paper as we reproduce it. `rows` are the table: a cell a column, numbers or text."""

    experiment: str
    number: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[float | str, ...], ...]
    notes: tuple[str, ...] = ()
    """The paper's report, and the reasons of our deviations: one sentence each."""
    log_x: bool = False
    log_y: bool = False
