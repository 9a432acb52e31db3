"""The page of all figures: what is on it, and that a run goes on where it was cut off."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from papers.experiments.claims import Cited
from papers.experiments.experiments import Figure, Series
from papers.experiments.loads import Costs
from papers.simulating import report

FIGURE = Figure(
    "toy", "1", "A <toy>", "x", "y", (Series("one", (0.0, 1.0), (2.0, 3.0)),), ("x", "what"),
    ((1.0, "low & high"), (1234.5, "b")), ("A note.",),
)  # fmt: skip


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    real, ran = importlib.import_module, list[str]()
    module = SimpleNamespace(FIGURES={"1": lambda: FIGURE})
    monkeypatch.setattr(importlib, "import_module", lambda name: module if name == "toy.module" else real(name))
    return ran


def gather(ran: list[str], directory: Path, key: str = "seed 1") -> list[Figure]:
    def run(function: Callable[..., Figure], name: str) -> Figure:
        ran.append(name)
        return function()

    return report.gather({"toy": "toy.module"}, run, directory, key)


def test_figures_that_are_done_are_not_run_again_unless_they_are_of_another_run(toy: list[str], tmp_path: Path) -> None:
    assert gather(toy, tmp_path) == gather(toy, tmp_path) == [FIGURE]
    assert toy == ["toy 1"]
    gather(toy, tmp_path, "seed 2")
    (tmp_path / "toy-1.json").write_text("{")
    gather(toy, tmp_path, "seed 2")
    assert toy == ["toy 1"] * 3


def test_the_page_shows_misses_as_hits_and_escapes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def drawn(figure: Figure, path: Path) -> None:
        path.write_text("<svg/>")

    def claim(what: str, paper: float) -> Cited:
        return Cited("toy", "1", what, paper, lambda figure: float(figure.rows[0][0]), 1.1, "because")

    monkeypatch.setattr(report, "draw", drawn)
    monkeypatch.setattr("papers.experiments.claims.CLAIMS", (claim("a hit", 1.0), claim("a miss", 2.0)))
    rows = report.write([FIGURE], tmp_path, Costs(parse_us=7.0), "Seed 1")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert [row.is_hit for row in rows] == [True, False]
    for text in ("hit 1 and miss 1", "class=hit", "class=miss", "because", "A &lt;toy&gt;", "low &amp; high", "1,234",
                 "A note.", "parse_us=7", "src='toy-1.svg'", "Not reproduced"):  # fmt: skip
        assert text in page
    assert page.count("because") == 1
    assert "<th>x<th class=text>what</tr>" in page, "a head stands over its column"
    assert "<dt>α<dd>" in page, "it explains the words of the papers"
    assert "<code>make bench-availability</code>" in page


def test_without_matplotlib_there_is_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def drawn(figure: Any, path: Path) -> None:
        raise report.NoMatplotlib("no")

    monkeypatch.setattr(report, "draw", drawn)
    report.write([FIGURE], tmp_path, Costs(), "Seed 1")
    assert "<img" not in (tmp_path / "index.html").read_text("utf-8")


@pytest.mark.parametrize(("deviations", "is_shown"), [((0.0, 0.0), False), ((0.0, 0.5), True)])
def test_a_single_run_shows_no_deviation(tmp_path: Path, deviations: tuple[float, float], is_shown: bool) -> None:
    rows = tuple((float(at), one, 0.0) for at, one in enumerate(deviations))
    report.write([replace(FIGURE, columns=("x", "sd ms", "lost"), rows=rows)], tmp_path, Costs(), "Seed 1")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert ("sd ms" in page) is is_shown
    assert "<th>lost" in page
