"""Cells of a simulation in Spark's executors: the bytes that this process gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from papers.overlays import self_organisation
from papers.overlays.octopis_cells import Cell, measure
from spark_ingest import sweep


@pytest.mark.spark
def test_executors_give_the_bytes_that_this_process_gives(spark: Any) -> None:
    cells = [Cell("steady", name, 1, 200, publishers=4, share=0.001) for name in ("SNR", "DNR", "BID")]
    found = dict(sweep.run(measure, cells, cores=2))
    assert json.dumps([found[at] for at in range(3)]) == json.dumps([measure(cell) for cell in cells])


@pytest.mark.slow
@pytest.mark.spark
def test_executors_play_trees_that_organise_themselves(spark: Any) -> None:
    cells = [self_organisation.TreeCell(name, 1, 0, 1_000, 2) for name in ("CI", "static")]
    found = dict(sweep.run(self_organisation.measure, cells, cores=2))
    assert json.dumps([found[at] for at in range(2)]) == json.dumps(
        self_organisation.serially(cells, lambda done: None)
    )
