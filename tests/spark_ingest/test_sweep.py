"""Cells of a simulation in Spark's executors: the bytes that this process gives."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from bridge.sim.octopis_cells import Cell, measure_text
from spark_ingest import sweep


def test_a_function_is_called_by_its_name() -> None:
    assert sweep.call("json:loads", '"x"') == "x"


@pytest.mark.spark
def test_executors_give_the_bytes_that_this_process_gives(spark: Any) -> None:
    cells = [Cell("steady", name, 1, 200, publishers=4, share=0.001) for name in ("SNR", "DNR", "BID")]
    texts = [json.dumps(asdict(cell), sort_keys=True) for cell in cells]
    found = dict(sweep.run("bridge.sim.octopis_cells:measure_text", texts, cores=2))
    assert [found[at] for at in range(3)] == [measure_text(text) for text in texts]
