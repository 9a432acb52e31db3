"""Names of figures: plain text wherever they are shown, and a meaning each."""

from __future__ import annotations

import json

from bridge.contract.figures import FigureName
from bridge.contract.machine import Count
from gateway.base.figures import Figures


def test_a_figure_is_its_name() -> None:
    assert FigureName.LINK_OVERFLOW == "link_overflow"
    assert f"{FigureName.LINK_OVERFLOW}" == "link_overflow"
    assert json.dumps({FigureName.REFUSED: 1}) == '{"refused": 1}'
    assert FigureName("refused").text == "What came is refused; the label says why."


def test_it_counts_as_its_name_does() -> None:
    figures = Figures("g", "gateway")
    figures.count_effect(Count(FigureName.REFUSED, 2, "topic"))
    figures.count_effect(Count("refused", 1, "topic"))
    assert figures.counts["refused.topic"] == 3
