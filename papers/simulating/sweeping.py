"""Sweeps over cells of an experiment, in this process, in several or in Spark; kept results let a run continue.

A result is its JSON, whatever its origin: a process, several, Spark and a kept file give equal bytes. Spark is found
by the entry point `veilmq.sweeps`, since nothing here knows of Spark. Not here: definition of cells (in `bridge`),
progress on the screen (`simulate`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, is_dataclass
from importlib.metadata import entry_points
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from papers.experiments.experiments import Progress

LAYOUT = 2
"""A number raised when a cell would give other results than before: kept results are then computed again."""


C = TypeVar("C")
R = TypeVar("R")
Elsewhere: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[tuple[int, Any]]]
"""Calls a function on cells in another place; yields (number, result) as results come."""


def on_spark() -> Elsewhere:
    """Returns the caller running cells on Spark. Raises LookupError if no Spark is installed."""
    for point in entry_points(group="veilmq.sweeps"):
        found: Elsewhere = point.load()
        return found
    raise LookupError("veilmq.sweeps")


class Sweeper(Generic[C, R]):
    """A runner of cells, which are dataclasses, with `jobs` processes; keeps results in `kept`, if given.

    Other processes find `run` by its name, and its results must fit JSON. `elsewhere`, if given, runs all cells
    (`on_spark`).
    """

    def __init__(
        self, run: Callable[[C], R], jobs: int = 1, kept: Path | None = None, elsewhere: Elsewhere | None = None
    ) -> None:
        self._jobs, self._kept, self._run, self._elsewhere = jobs, kept, run, elsewhere

    def __call__(self, cells: Sequence[C], progress: Progress) -> list[R]:
        """Returns the results in the order of the cells. Raises OSError if results cannot be kept."""
        found = {cell: self._read_result(cell) for cell in cells}
        left = [cell for cell, result in found.items() if result is None]
        for cell, result in self._results(left):
            text = json.dumps(result, sort_keys=True)
            self._write_result(cell, text)
            found[cell] = json.loads(text)
            progress(sum(one is not None for one in found.values()) / len(found))
        results = [found[cell] for cell in cells]
        return [result for result in results if result is not None]

    def _results(self, cells: Sequence[C]) -> Iterator[tuple[C, R]]:
        if self._elsewhere is not None and cells:
            yield from ((cells[at], result) for at, result in self._elsewhere(self._run, cells))
            return
        if self._jobs == 1 or len(cells) < 2:
            yield from ((cell, self._run(cell)) for cell in cells)
            return
        # Not forked: the progress bar has a thread.
        with ProcessPoolExecutor(self._jobs, mp_context=get_context("spawn")) as pool:
            running = {pool.submit(self._run, cell): cell for cell in cells}
            for future in as_completed(running):
                yield running[future], future.result()

    def _path(self, cell: C) -> Path | None:
        if self._kept is None:
            return None
        assert is_dataclass(cell)
        assert not isinstance(cell, type)
        name = json.dumps([LAYOUT, type(cell).__name__, asdict(cell)], sort_keys=True)
        return self._kept / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    def _read_result(self, cell: C) -> R | None:
        path = self._path(cell)
        if path is None or not path.exists():
            return None
        try:
            result: R = json.loads(path.read_text("utf-8"))
        except ValueError:
            return None  # cut off during a write
        return result

    def _write_result(self, cell: C, text: str) -> None:
        path = self._path(cell)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
