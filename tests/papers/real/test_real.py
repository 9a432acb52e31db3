"""The list of figures on recorded data."""

from __future__ import annotations

import inspect

from papers.real.real import FIGURES


def test_each_figure_takes_the_data_and_has_a_name_of_its_own() -> None:
    assert len(set(FIGURES.values())) == len(FIGURES)
    assert all("recorded" in inspect.signature(function).parameters for function in FIGURES.values())
