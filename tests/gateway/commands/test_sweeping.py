"""Cells run here, in processes, or not at all since they are kept: the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

from bridge.sim.octopis_cells import Cell, Numbers, measure
from gateway.commands.sweeping import Sweeper

CELLS = [Cell("steady", name, seed, 200, publishers=4, share=0.001) for name in ("SNR", "BID") for seed in (1, 2)]


def quiet(done: float) -> None: ...


def test_one_process_several_and_kept_ones_give_equal_bytes(tmp_path: Path) -> None:
    here = json.dumps(Sweeper(measure)(CELLS, quiet))
    assert json.dumps(Sweeper(measure, 2, tmp_path)(CELLS, quiet)) == here
    assert json.dumps(Sweeper(_never, 1, tmp_path)(CELLS, quiet)) == here


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    ran: list[Cell] = []

    def run(cell: Cell) -> Numbers:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(cell)
        return {"seed": float(cell.seed)}

    try:
        Sweeper(run, 1, tmp_path)(CELLS, quiet)
    except KeyboardInterrupt:
        ran.clear()
    kept = next(tmp_path.iterdir())
    kept.write_text('{"seed": 1')  # cut off in the middle
    progress: list[float] = []
    again: list[Cell] = []

    def note(cell: Cell) -> Numbers:
        again.append(cell)
        return {"seed": float(cell.seed)}

    assert [one["seed"] for one in Sweeper(note, 1, tmp_path)(CELLS, progress.append)] == [1, 2, 1, 2]
    assert len(again) == 3
    assert progress == [0.5, 0.75, 1.0]


def _never(cell: Cell) -> Numbers:
    raise AssertionError("it is kept")
