"""Cells run here, in processes, or not at all since they are kept: the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from papers.overlays.octopis_cells import Cell, Numbers, measure
from papers.simulating import sweeping
from papers.simulating.sweeping import Sweeper

CELLS = [Cell("steady", name, seed, 200, publishers=4, share=0.001) for name in ("SNR", "BID") for seed in (1, 2)]


def quiet(done: float) -> None: ...


def test_one_process_several_and_kept_ones_give_equal_bytes(tmp_path: Path) -> None:
    here = json.dumps(Sweeper(measure)(CELLS, quiet))
    assert json.dumps(Sweeper(measure, 2, tmp_path)(CELLS, quiet)) == here
    assert json.dumps(Sweeper(_never, 1, tmp_path)(CELLS, quiet)) == here


def test_elsewhere_gives_the_same_bytes(tmp_path: Path) -> None:
    asked: list[int] = []

    def elsewhere(function: Callable[[Cell], Numbers], cells: Sequence[Cell]) -> Iterable[tuple[int, Numbers]]:
        asked.append(len(cells))
        return [(at, function(cell)) for at, cell in reversed(list(enumerate(cells)))]

    sweeper = Sweeper(measure, 1, tmp_path, elsewhere)
    here = json.dumps(Sweeper(measure)(CELLS, quiet))
    assert [json.dumps(sweeper(CELLS, quiet)) for _ in range(2)] == [here, here]
    assert asked == [len(CELLS)], "kept ones are asked of nobody"


def test_spark_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "entry_points", lambda group: [])
    with pytest.raises(LookupError):
        sweeping.on_spark()
    point = SimpleNamespace(load=lambda: _never)
    monkeypatch.setattr(sweeping, "entry_points", lambda group: [point] if group == "veilmq.sweeps" else [])
    assert sweeping.on_spark() is _never


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
