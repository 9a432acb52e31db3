"""Table 1 of EventGuard: every row is a call that works, and speed is what a clock says."""

from __future__ import annotations

from itertools import count

import pytest

from papers.attacks.primitives import PAPER, figure_primitives
from tests.papers.experiments.helpers import ignore, rows


def test_speeds_are_bytes_or_calls_by_the_clock_beside_the_papers() -> None:
    ticks = count()
    figure = figure_primitives(1, ignore, clock=lambda: next(ticks) / 1000, rounds=3, calls=2)
    assert (figure.experiment, figure.number) == ("eventguard", "table-1")
    assert [row["paper"] for row in rows(figure)] == list(PAPER.values())
    by_unit = {(row["primitive"], row["unit"]): row["ours"] for row in rows(figure)}
    # two calls take a tick of a millisecond
    assert by_unit["hash", "MB/s of 16 bytes"] == pytest.approx(2_000 * 16 / 1e6)
    assert by_unit["encryption", "MB/s of 1024 bytes"] == pytest.approx(2_000 * 1_024 / 1e6)
    assert by_unit["sign", "a second"] == by_unit["verify", "a second"] == pytest.approx(2_000)
