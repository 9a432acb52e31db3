"""Claims are read from figures that exist, and a miss is a miss.

Table 3 of the paper on availability: sums by hand, and every row of the paper's.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from papers.experiments.claims import (
    AUTHORISED,
    CLAIMS,
    CLOSE,
    HOPS,
    ORDER,
    PAPER_MS,
    SECURED,
    TCP,
    UDP,
    Cited,
    Compared,
    cell,
    compared,
    figure_routing,
    trace_us,
)
from papers.experiments.experiments import Figure
from papers.experiments.loads import Costs
from papers.experiments.secret_forwarding import figure_7 as figure_a7
from papers.overlays.octopis import figure_7, figure_links
from papers.overlays.self_organisation import figure_2
from tests.papers.experiments.helpers import ignore, rows

COSTS = Costs(parse_us=1, write_us=2, seal_us=30, open_us=40, sign_us=500, verify_us=700, tcp_us=9, udp_us=6)


def test_sums_by_hand() -> None:
    assert trace_us(COSTS, 2, TCP, AUTHORISED) == 2 * 500 + 700 + 2 * (9 + 1 + 700 + 2)
    assert trace_us(COSTS, 2, TCP, SECURED) - trace_us(COSTS, 2, TCP, AUTHORISED) == 70
    assert trace_us(COSTS, 6, TCP, SECURED) - trace_us(COSTS, 6, UDP, SECURED) == 6 * 3


def test_every_row_of_the_paper_is_there_with_ours_beside_it() -> None:
    figure = figure_routing(1, ignore, costs=COSTS)
    assert len(rows(figure)) == len(PAPER_MS) * len(HOPS) == 20
    (row,) = rows(figure, transport=UDP, protection=SECURED, hops=6.0)
    assert row["paper ms"] == 114.33
    assert row["ours ms"] == pytest.approx(trace_us(COSTS, 6, UDP, SECURED) / 1000)


MODULES = {
    "availability": "papers.experiments.claims",
    "eventguard": "papers.attacks.eventguard",
    "octopis": "papers.overlays.octopis",
    "secret-forwarding": "papers.experiments.secret_forwarding",
    "self-organisation": "papers.overlays.self_organisation",
}


NAME = re.compile(r"\b\d+[a-c]?\b")


def quiet(done: float) -> None: ...


def test_every_claim_is_about_a_figure_that_exists() -> None:
    assert {(one.experiment, one.figure) for one in CLAIMS} <= {
        (name, number) for name, module in MODULES.items() for number in importlib.import_module(module).FIGURES
    }


def test_what_may_be_missed_says_why() -> None:
    certain = {("octopis", "2-5"), ("octopis", "7"), ("self-organisation", "2"), ("eventguard", "4")}
    silent = {(one.experiment, one.figure, one.what) for one in CLAIMS if not one.reason}
    assert {(experiment, figure) for experiment, figure, _ in silent} - certain == set(), silent


LETTERS = {"secret-forwarding": "A", "availability": "B", "octopis": "C", "self-organisation": "D", "eventguard": "E"}
NAMES = {"7-latency": "Fig 7", "table-1": "Table 1", "table-3": "Table 3"}


def test_each_number_that_may_be_missed_has_its_sentence() -> None:
    """Whether it can be right under its paper's own assumptions; figures of a paper may share a paragraph."""
    page = Path("docs/explanation/papers.md").read_text("utf-8").partition("### Can the missed numbers be right?")[2]
    heads = [line[4:].partition("**")[0] for line in page.splitlines() if line.startswith("* **")]
    said = {(head[0], name) for head in heads for name in NAME.findall(head.replace("Figs", "Fig"))}
    wanted = {
        (LETTERS[one.experiment], NAMES.get(one.figure, f"Fig {one.figure}").split()[-1])
        for one in CLAIMS
        if one.reason
    }
    assert wanted <= said, sorted(wanted - said)


@pytest.mark.parametrize(("paper", "ours", "within", "hit"), [
    (100, 109, CLOSE, True), (100, 111, CLOSE, False), (100, 91, CLOSE, True), (100, 90, CLOSE, False),
    (-13, -7, ORDER, True), (-13, 7, ORDER, False), (-13, 0, ORDER, False), (0, 0, CLOSE, True), (0, 1, CLOSE, False),
])  # fmt: skip
def test_hits_and_misses(paper: float, ours: float, within: float, hit: bool) -> None:
    assert Compared(Cited("x", "1", "y", paper, lambda figure: ours, within), ours).is_hit is hit


def test_exact_ones_are_hit_and_the_paper_that_contradicts_itself_is_missed() -> None:
    figures = [figure_links(1, quiet), figure_7(1, quiet), figure_a7(1, quiet), figure_2(1, quiet)]
    found = {(row.claim.experiment, row.claim.what): (row.is_hit, row.ours) for row in compared(figures)}
    assert len(found) == 9
    assert [hit for (experiment, _), (hit, _) in found.items() if experiment == "octopis"] == [True] * 4
    assert [ours for (experiment, _), (_, ours) in found.items() if experiment == "secret-forwarding"] == [5.0]
    assert [hit for (experiment, _), (hit, _) in found.items() if experiment == "self-organisation"] == [True] * 4


def test_a_cell_is_found_by_its_neighbours() -> None:
    figure = Figure("x", "1", "", "", "", (), ("fan-out", "mean hops"), ((2.0, 5.0), (3.0, 7.0)))
    assert cell("mean hops", fan_out=3.0)(figure) == 7.0
    with pytest.raises(LookupError):
        cell("mean hops", fan_out=4.0)(figure)
