"""Drawing of an experiment's figures with matplotlib, the optional extra `sim`.

matplotlib is imported when a figure is drawn. A figure makes a single SVG, byte by byte, with a version of matplotlib.
Not here: the numbers (in `bridge`), tables (`simulate`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from papers.experiments.experiments import Figure

SUFFIXES = (".svg", ".png")
SIZE_INCHES = (7.0, 4.5)
PNG_DPI = 150
LEGEND_COLUMNS, LEGEND_CHARS = 3, 105
"""Columns of a legend at most, and characters that fit below a picture."""
DECADE = 10.0
"""A logarithmic axis over less than this factor shows no power of ten: such an axis is linear."""
WIDEST, NARROWEST = 2.4, 1.0
"""Widths of the first line and of the last: a line below another one that has equal values still shows."""
FLAT_CHARS = 16
"""Characters of a name that fits below its point without being turned."""
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
    longest = max((len(series.name) for series in figure.series), default=0)
    columns = max(1, min(LEGEND_COLUMNS, LEGEND_CHARS // (longest + 10)))
    canvas.legend(loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    with matplotlib.rc_context({"svg.hashsalt": "veilmq", "svg.fonttype": "none"}):
        canvas.savefig(path, dpi=PNG_DPI, metadata={"Date": None} if path.suffix == ".svg" else {})


def _plot(figure: Figure, axes: Any) -> None:
    names = _names(figure)
    for at, (series, (marker, style)) in enumerate(zip(figure.series, _styles(), strict=False)):
        line = "none" if names else style  # no line joins what has no order
        width = WIDEST - (WIDEST - NARROWEST) * at / max(1, len(figure.series) - 1)
        look = {"label": series.name, "marker": marker, "linestyle": line, "linewidth": width}
        look["markersize"] = 3 + width
        if series.intervals:
            axes.errorbar(series.xs, series.ys, yerr=series.intervals, capsize=2.5, elinewidth=0.9, **look)
        else:
            axes.plot(series.xs, series.ys, **look)
    axes.set_title(figure.title, fontsize=10)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    if figure.log_x:
        axes.set_xscale("log", nonpositive="mask")
    elif names:
        turned = {} if max(map(len, names)) <= FLAT_CHARS else {"rotation": 20, "ha": "right"}
        axes.set_xticks(figure.series[0].xs, names, fontsize=8, **turned)
    elif all(x.is_integer() for series in figure.series for x in map(float, series.xs)):
        axes.locator_params(axis="x", integer=True)
    ys = [y for series in figure.series for y in series.ys if y > 0]
    if figure.log_y and ys and max(ys) >= DECADE * min(ys):
        axes.set_yscale("log", nonpositive="mask")
    else:
        axes.get_yaxis().set_major_formatter(lambda value, _: f"{value:,.10g}")
        ends = [y - half for one in figure.series for y, half in zip(one.ys, one.intervals, strict=False)]
        if min(ends, default=0.0) < 0 <= min(y for one in figure.series for y in one.ys):
            axes.set_ylim(bottom=0)  # an interval longer than its mean
    axes.grid(visible=True, alpha=0.3)


def _names(figure: Figure) -> list[str]:
    """Returns the names of the points of a figure whose rows are named and unordered; none for any other."""
    texts = [[cell for cell in row if isinstance(cell, str)] for row in figure.rows]
    xs = figure.series[0].xs if figure.series else ()
    counted = xs in {tuple(map(float, range(first, first + len(texts)))) for first in (0, 1)}
    if not counted or any(series.xs != xs for series in figure.series):
        return []
    if not all(isinstance(row[0], str) for row in figure.rows):
        return []
    short, long = [text[0] for text in texts], [f"{text[0]}, {text[-1]}" for text in texts]
    return next((names for names in (short, long) if len(set(names)) == len(names)), [])


def _styles() -> Iterator[tuple[str, str]]:
    """Yields pairs of marker and line, so that series can be told apart without colours."""
    return zip(cycle(MARKERS), cycle(LINES), strict=False)
