"""`veilmq simulate all`: every figure of every experiment on a page, with the papers' values beside ours.

The page begins with the comparison: hits and misses in a single table, each miss with its reason. Results of the
papers without a figure here follow. Then come, figure by figure, the picture, the table and the notes, and the inputs
measured on this machine. An interrupted run continues: finished figures are kept beside the page.
"""

from __future__ import annotations

import html
import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from papers.experiments.claims import ABSENT, EXACT, Compared, compared
from papers.experiments.experiments import Figure, Series
from papers.experiments.loads import Costs
from papers.simulating.pictures import NoMatplotlib, draw

Run: TypeAlias = Callable[[Callable[..., Figure], str], Figure]
"""Runs a figure's function under a name for the progress."""

PAPERS: Mapping[str, str] = {
    "availability": "B: availability of entities",
    "secret-forwarding": "A: secret forwarding",
    "octopis": "C: structured overlays",
    "placement": "A: placement of replicas",
    "self-organisation": "D: self-organising overlays",
    "eventguard": "E: EventGuard",
    "real": "Recorded data",
}
WORDS: Mapping[str, str] = {
    "α": "skew of a Zipf distribution: the larger it is, the more falls on few brokers or topics",
    "SNR, DNR, BID": "static and dynamic routing of notifications along planes, and the baseline, where each "
    "notification lists the brokers that want it",
    "CI, ℓMST, ℓMIT": "trees of brokers that form themselves by cost and common interest, by the cheapest links alone, "
    "and by common interest alone",
    "Siena": "a broker network without guards, the baseline of EventGuard",
    "± 95 %": "half of the 95 % confidence interval of a mean; bars in the curves",
    "n, k, f": "replicas of a virtual node, how many of their shares make a key, and how many may be bad",
}
"""Words of the papers that the page uses."""
LONGEST = 1e9
"""Numbers from here on are shown by three digits and a power of ten."""
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;font-size:.85rem;margin:1rem 0}td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;
text-align:right;vertical-align:top}td.text,th.text{text-align:left}.scroll{overflow-x:auto}
td.mark,td.figure{white-space:nowrap}td.what{min-width:11rem}td.why{min-width:16rem}dt{font-weight:bold}
.hit{background:#e6f4ea}.miss{background:#fde8e6}img{max-width:100%;height:auto}h2{margin-top:3rem}
@media(max-width:40rem){body{margin:1rem auto}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{font-size:.75rem}td,th{padding:.2rem .3rem}td.figure{white-space:normal}
td.what{min-width:7rem}td.why{min-width:9rem}}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#16181c}td,th{border-color:#3a3d42}.hit{background:#173822}
.miss{background:#48201c}img{background:#fff}}
"""


def gather(experiments: Mapping[str, str], run: Run, directory: Path, key: str) -> list[Figure]:
    """Returns every figure, from `directory` if an earlier run with this `key` (seed, size) left it there."""
    found = []
    for experiment, module in experiments.items():
        functions: Mapping[str, Callable[..., Figure]] = importlib.import_module(module).FIGURES
        for number, function in functions.items():
            path = directory / f"{experiment}-{number}.json"
            figure = _read(path, key)
            if figure is None:
                figure = run(function, f"{experiment} {number}")
                path.write_text(json.dumps({"key": key, "figure": asdict(figure)}, ensure_ascii=False), "utf-8")
            found.append(figure)
    return found


def _read(path: Path, key: str) -> Figure | None:
    try:
        kept = json.loads(path.read_text("utf-8"))
        if kept["key"] != key:
            return None
        fields = kept["figure"]
        fields["series"] = tuple(
            Series(one["name"], *(tuple(one[part]) for part in ("xs", "ys", "intervals"))) for one in fields["series"]
        )
        for name in ("columns", "notes"):
            fields[name] = tuple(fields[name])
        fields["rows"] = tuple(map(tuple, fields["rows"]))
        return Figure(**fields)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(figures: Sequence[Figure], directory: Path, costs: Costs, key: str) -> list[Compared]:
    """Writes `index.html` and a picture for each figure; returns the comparison.

    Without matplotlib there are no pictures.
    """
    for figure in figures:
        try:
            draw(figure, directory / _picture(figure))
        except NoMatplotlib:
            break
    rows = compared(figures)
    page = "".join(_page(figures, rows, directory, costs, key))
    (directory / "index.html").write_text(page, "utf-8")
    return rows


def _picture(figure: Figure) -> str:
    return f"{figure.experiment}-{figure.number}.svg"


def _page(
    figures: Sequence[Figure], rows: Sequence[Compared], directory: Path, costs: Costs, key: str
) -> Iterator[str]:
    yield "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    yield f"<title>Figures of the papers</title><style>{STYLE}</style><h1>Figures of the papers, again</h1>"
    yield "<p>Five papers describe the parts of VeilMQ: A, secret forwarding and placement of replicas; B, "
    yield "availability of entities; C, structured overlays; D, self-organising overlays; E, EventGuard.</p>"
    yield from _claimed(rows, key) if rows else (f"<p>{_text(key)}.</p>",)
    yield "<dl>" + "".join(f"<dt>{_text(word)}<dd>{_text(meaning)}" for word, meaning in WORDS.items()) + "</dl>"
    yield "<h2>Figures</h2><ul class=contents>"
    yield "".join(f"<li><a href='#{_anchor(figure)}'>{_heading(figure)}</a>" for figure in figures) + "</ul>"
    if rows:
        yield from _conditions(costs)
    for figure in figures:
        yield from _section(figure, directory)
    yield "</html>\n"


def _claimed(rows: Sequence[Compared], key: str) -> Iterator[str]:
    """Yields the numbers of the papers beside ours."""
    hits = sum(row.is_hit for row in rows)
    yield f"<p>{_text(key)}. Of {len(rows)} numbers of the papers ours hit {hits} and miss {len(rows) - hits}. "
    yield "A number counts as hit if it is off by no more than the factor in the last column. Each row is a number "
    yield "that a paper claims, beside what our simulation or this machine gives. Each name links to its curve.</p>"
    yield "<div class=scroll><table><tr>"
    yield "".join(f"<th class=text>{name}" for name in ("", "figure", "what"))
    yield "<th>paper<th>ours<th class=text>reason of a miss<th>within</tr>"
    for row in rows:
        one, mark = row.claim, "hit" if row.is_hit else "miss"
        yield f"<tr class={mark}><td class='text mark'>{mark}<td class='text figure'>"
        yield f"<a href='#{one.experiment}-{one.figure}'>{_text(one.experiment)} {_text(one.figure)}</a>"
        yield f"<td class='text what'>{_text(one.what)}<td>{_number(one.paper)}"
        reason = "" if row.is_hit else one.reason
        yield f"<td>{_number(row.ours)}<td class='text why'>{_text(reason)}<td>{_within(one.within)}</tr>"
    yield "</table></div>"


def _conditions(costs: Costs) -> Iterator[str]:
    """Yields what is not reproduced, and what was measured."""
    yield "<h2>Not reproduced</h2><ul>"
    yield "".join(f"<li><b>{_text(what)}</b>: {_code(why)}" for what, why in ABSENT)
    yield "</ul><h2>Measured on this machine</h2><p>Figures 6 and saturation of EventGuard, table 3 of availability "
    yield "and 7-latency of secret forwarding take these as inputs, in microseconds; <code>--cost NAME=US</code> sets "
    yield "one. Table 1 of EventGuard, figures 8 and 7-latency of secret forwarding are measured themselves. "
    yield "Everything else follows from the seed.</p><p><code>"
    yield " ".join(f"{name}={_number(value)}" for name, value in asdict(costs).items()) + "</code></p>"


def _anchor(figure: Figure) -> str:
    return f"{figure.experiment}-{figure.number}"


def _heading(figure: Figure) -> str:
    paper = _text(PAPERS.get(figure.experiment, figure.experiment))
    return f"{paper}, {_label(figure.number)}: {_text(figure.title)}"


def _section(figure: Figure, directory: Path) -> Iterator[str]:
    yield f"<h2 id='{_anchor(figure)}'>{_heading(figure)}</h2>"
    if (directory / _picture(figure)).exists():
        yield f"<img src='{_picture(figure)}' alt='{_text(figure.title)}'>"
    shown = [at for at in range(len(figure.columns)) if not _is_unknown(figure, at)]
    texts = [" class=text" * any(isinstance(row[at], str) for row in figure.rows) for at in shown]
    heads = zip(texts, (figure.columns[at] for at in shown), strict=True)
    yield "<div class=scroll><table><tr>" + "".join(f"<th{kind}>{_text(one)}" for kind, one in heads) + "</tr>"
    for row in figure.rows:
        yield "<tr>" + "".join(map(_cell, (row[at] for at in shown))) + "</tr>"
    yield "</table></div><ul>" + "".join(f"<li>{_code(note)}" for note in figure.notes) + "</ul>"


def _cell(value: float | str) -> str:
    return f"<td class=text>{_text(value)}" if isinstance(value, str) else f"<td>{_number(value)}"


def _is_unknown(figure: Figure, at: int) -> bool:
    """Returns True for a column of standard deviations that are all 0: a single run has none."""
    return "sd" in figure.columns[at].split() and not any(row[at] for row in figure.rows)


def _label(number: str) -> str:
    return _text(number.replace("-", " ") if number.startswith("table") else f"figure {number}")


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _code(value: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", _text(value))


def _within(factor: float) -> str:
    return "exact" if factor <= EXACT else f"{factor:.3g}"


def _number(value: float) -> str:
    if 1000 <= abs(value) < LONGEST:
        return f"{value:,.0f}"
    return re.sub(r"\.0+$", "", f"{value:.3g}")
