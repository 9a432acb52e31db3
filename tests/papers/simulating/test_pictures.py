"""Figures of experiments as pictures: drawn by a recorder, and by matplotlib where it is there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from papers.experiments.experiments import Figure, Series
from papers.simulating.pictures import NoMatplotlib, draw

FIGURE = Figure(
    experiment="toy",
    number="1",
    title="A toy [of ours]",
    x_label="x",
    y_label="y",
    series=(Series("one", (0.0, 1.0, 2.0), (0.0, 0.5, 1.0)), Series("two", (0.0, 1.0, 2.0), (1.0, 0.1, 0.0))),
    columns=("x",),
    rows=((0.0,),),
    notes=(),
)


class Recorder:
    """Stands for every object of matplotlib and notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return self

        return call

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None: ...

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made, before = Recorder(), importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: made if "matplotlib" in name else before(name))
    return made


def test_a_series_with_intervals_has_bars(recorder: Recorder, tmp_path: Path) -> None:
    series = replace(FIGURE.series[0], intervals=(0.1, 0.2, 0.3))
    draw(replace(FIGURE, series=(series, FIGURE.series[1])), tmp_path / "a.svg")
    ((_, bars),) = recorder.of("errorbar")
    assert (bars["yerr"], bars["label"]) == ((0.1, 0.2, 0.3), "one")
    assert [kwargs["label"] for _, kwargs in recorder.of("plot")] == ["two"]


def test_every_series_is_drawn_with_a_style_of_its_own(recorder: Recorder, tmp_path: Path) -> None:
    many = tuple(replace(FIGURE.series[0], name=str(number)) for number in range(8))
    draw(replace(FIGURE, series=many), tmp_path / "a.svg")
    lines = recorder.of("plot")
    assert [kwargs["label"] for _, kwargs in lines] == [series.name for series in many]
    assert all(args == (FIGURE.series[0].xs, FIGURE.series[0].ys) for args, _ in lines)
    assert len({(kwargs["marker"], kwargs["linestyle"]) for _, kwargs in lines}) == 8
    assert recorder.of("set_xlabel")[0][0] == ("x",)
    assert recorder.of("set_ylabel")[0][0] == ("y",)


@pytest.mark.parametrize(("log_x", "log_y"), [(False, False), (True, False), (False, True)])
def test_scales_are_those_of_the_figure(recorder: Recorder, tmp_path: Path, log_x: bool, log_y: bool) -> None:
    draw(replace(FIGURE, log_x=log_x, log_y=log_y), tmp_path / "a.png")
    for name, is_log in (("set_xscale", log_x), ("set_yscale", log_y)):
        assert [args for args, _ in recorder.of(name)] == ([("log",)] if is_log else [])


def test_counts_have_whole_ticks_and_names_stand_for_rows_without_an_order(recorder: Recorder, tmp_path: Path) -> None:
    draw(FIGURE, tmp_path / "a.svg")
    assert recorder.of("locator_params") == [((), {"axis": "x", "integer": True})]
    recorder.calls.clear()
    halves = (Series("one", (0.5, 1.5), (1.0, 2.0)),)
    draw(replace(FIGURE, series=halves), tmp_path / "a.svg")
    assert not recorder.of("locator_params")
    recorder.calls.clear()
    draw(replace(FIGURE, rows=(("hash",), ("sign",), ("verify",))), tmp_path / "a.svg")
    assert recorder.of("set_xticks")[0][0] == ((0.0, 1.0, 2.0), ["hash", "sign", "verify"])
    assert {kwargs["linestyle"] for _, kwargs in recorder.of("plot")} == {"none"}


def test_a_logarithmic_axis_spans_a_decade_at_least(recorder: Recorder, tmp_path: Path) -> None:
    near = (Series("one", (0.0, 1.0), (1.1, 2.8)),)
    draw(replace(FIGURE, series=near, log_y=True), tmp_path / "a.svg")
    assert not recorder.of("set_yscale")


def test_an_interval_longer_than_its_mean_does_not_go_below_zero(recorder: Recorder, tmp_path: Path) -> None:
    wide = Series("one", (0.0, 1.0), (1.0, 2.0), (0.5, 3.0))
    draw(replace(FIGURE, series=(wide,)), tmp_path / "a.svg")
    assert recorder.of("set_ylim") == [((), {"bottom": 0})]
    recorder.calls.clear()
    for series in (FIGURE.series[0], replace(wide, ys=(-1.0, 2.0)), replace(wide, intervals=(0.5, 1.0))):
        draw(replace(FIGURE, series=(series,)), tmp_path / "a.svg")
    assert not recorder.of("set_ylim")


def test_a_line_below_another_one_shows(recorder: Recorder, tmp_path: Path) -> None:
    draw(FIGURE, tmp_path / "a.svg")
    first, second = (kwargs for _, kwargs in recorder.of("plot"))
    assert (first["linewidth"], first["markersize"]) > (second["linewidth"], second["markersize"])


def test_short_names_of_points_are_not_turned(recorder: Recorder, tmp_path: Path) -> None:
    for rows, turned in (((("I",), ("II",), ("III",)), False), ((("a name that is long",), ("b",), ("c",)), True)):
        recorder.calls.clear()
        draw(replace(FIGURE, rows=rows), tmp_path / "a.svg")
        assert ("rotation" in recorder.of("set_xticks")[0][1]) is turned


def test_large_numbers_of_an_axis_are_grouped(recorder: Recorder, tmp_path: Path) -> None:
    draw(FIGURE, tmp_path / "a.svg")
    (((said,), _),) = recorder.of("set_major_formatter")
    assert [said(value, 0) for value in (2_700_000.0, 0.25, -1500.0)] == ["2,700,000", "0.25", "-1,500"]


@pytest.mark.parametrize(("length", "columns"), [(3, 3), (35, 2), (60, 1)])
def test_a_legend_is_no_wider_than_its_picture(recorder: Recorder, tmp_path: Path, length: int, columns: int) -> None:
    draw(replace(FIGURE, series=(Series("x" * length, (0.0,), (1.0,)),)), tmp_path / "a.svg")
    assert recorder.of("legend")[0][1]["ncols"] == columns


@pytest.mark.parametrize(("name", "metadata"), [("a.svg", {"Date": None}), ("a.png", {})])
def test_an_svg_has_no_date(recorder: Recorder, tmp_path: Path, name: str, metadata: dict[str, Any]) -> None:
    draw(FIGURE, tmp_path / name)
    ((path,), options) = recorder.of("savefig")[0]
    assert (path, options["metadata"]) == (tmp_path / name, metadata)


def test_no_matplotlib_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def without(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(NoMatplotlib, match=r"pip install 'veilmq\[sim\]'"):
        draw(FIGURE, tmp_path / "a.svg")
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize("name", ["a.pdf", "a", "svg"])
def test_other_formats_are_refused(recorder: Recorder, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"ends in \.svg or \.png, not {name}$"):
        draw(FIGURE, tmp_path / name)
    assert not recorder.calls


def test_real_pictures_have_their_format_and_repeat(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg", "a.png"):
        draw(replace(FIGURE, log_y=True, log_x=True), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n")
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert "<svg" in svg
    assert "A toy [of ours]" in svg
    assert svg == (tmp_path / "b.svg").read_text("utf-8")
