"""Drawing of an experiment's figures with matplotlib, the optional extra `sim`.

matplotlib is imported when a figure is drawn. One figure makes one SVG, byte by byte, with one version of matplotlib.
Not here: the numbers (in `bridge`), tables (`simulate`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from bridge.experiments.experiments import Figure

SUFFIXES = (".svg", ".png")
SIZE_INCHES = (7.0, 4.5)
PNG_DPI = 150
LEGEND_COLUMNS = 3
MARKERS = "osD^vPX*"
LINES = ("-", "--", "-.", ":")


class NoMatplotlib(Exception):  # noqa: N818  not an error of the figure
    """An error because matplotlib is not installed; the message gives the command that installs it."""


def draw(figure: Figure, path: Path) -> None:
    """Writes the picture; PNG or SVG by the suffix of `path`.

    Raises NoMatplotlib, OSError, ValueError for a suffix.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"a picture ends in {' or '.join(SUFFIXES)}, not {path.name}")
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        canvas: Any = importlib.import_module("matplotlib.figure").Figure(SIZE_INCHES, layout="constrained")
    except ImportError:
        raise NoMatplotlib("matplotlib is not installed; pip install 'veilmq[sim]'") from None
    _plot(figure, canvas.subplots())
    canvas.legend(loc="outside lower center", ncols=LEGEND_COLUMNS, fontsize=8, frameon=False)
    with matplotlib.rc_context({"svg.hashsalt": "veilmq", "svg.fonttype": "none"}):
        canvas.savefig(path, dpi=PNG_DPI, metadata={"Date": None} if path.suffix == ".svg" else {})


def _plot(figure: Figure, axes: Any) -> None:
    for series, (marker, line) in zip(figure.series, _styles(), strict=False):
        axes.plot(series.xs, series.ys, label=series.name, marker=marker, linestyle=line, markersize=4, linewidth=1.3)
    axes.set_title(figure.title, fontsize=10)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    if figure.log_x:
        axes.set_xscale("log", nonpositive="mask")
    if figure.log_y:
        axes.set_yscale("log", nonpositive="mask")
    axes.grid(visible=True, alpha=0.3)


def _styles() -> Iterator[tuple[str, str]]:
    """Yields pairs of marker and line, so that series can be told apart without colours."""
    return zip(cycle(MARKERS), cycle(LINES), strict=False)
