"""Cells run here, in processes, or not at all since they are kept: the same bytes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.sim.octopis_cells import Cell, Numbers
from gateway.commands import sweeping
from gateway.commands.sweeping import Sweeper

CELLS = [Cell("steady", name, seed, 200, publishers=4, share=0.001) for name in ("SNR", "BID") for seed in (1, 2)]


def quiet(done: float) -> None: ...


def test_one_process_several_and_kept_ones_give_equal_bytes(tmp_path: Path) -> None:
    here = json.dumps(Sweeper()(CELLS, quiet))
    assert json.dumps(Sweeper(2, tmp_path)(CELLS, quiet)) == here
    assert json.dumps(Sweeper(1, tmp_path, _never)(CELLS, quiet)) == here


def test_elsewhere_gives_the_same_bytes(tmp_path: Path) -> None:
    asked: list[str] = []

    def elsewhere(function: str, texts: Sequence[str]) -> Iterable[tuple[int, str]]:
        module, _, name = function.partition(":")
        asked.append(function)
        run = getattr(importlib.import_module(module), name)
        return [(at, run(text)) for at, text in reversed(list(enumerate(texts)))]

    sweeper = Sweeper(1, tmp_path, _never, elsewhere)
    assert json.dumps(sweeper(CELLS, quiet)) == json.dumps(Sweeper()(CELLS, quiet))
    assert json.dumps(sweeper(CELLS, quiet)) == json.dumps(Sweeper()(CELLS, quiet))
    assert len(asked) == 1, "kept ones are asked of nobody"


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
        Sweeper(1, tmp_path, run)(CELLS, quiet)
    except KeyboardInterrupt:
        ran.clear()
    kept = next(tmp_path.iterdir())
    kept.write_text('{"seed": 1')  # cut off in the middle
    progress: list[float] = []
    again: list[Cell] = []

    def note(cell: Cell) -> Numbers:
        again.append(cell)
        return {"seed": float(cell.seed)}

    assert [one["seed"] for one in Sweeper(1, tmp_path, note)(CELLS, progress.append)] == [1, 2, 1, 2]
    assert len(again) == 3
    assert progress == [0.5, 0.75, 1.0]


def _never(cell: Cell) -> Numbers:
    raise AssertionError("it is kept")
