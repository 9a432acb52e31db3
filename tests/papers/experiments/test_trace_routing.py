"""Table 3 of the paper on availability: sums by hand, and every row of the paper's."""

from __future__ import annotations

import pytest

from papers.experiments.loads import Costs
from papers.experiments.trace_routing import AUTHORISED, HOPS, PAPER_MS, SECURED, TCP, UDP, figure_routing, trace_us
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
