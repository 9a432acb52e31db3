"""Schedules of the simulator take every transition that a table of states declares: no row is there for nothing."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest

from bridge.base import Transitions
from bridge.document.succession import VIEW
from tests.sim.schedules import TEMPLATES, run

WALKS: dict[str, tuple[Transitions[Any, Any], Callable[[], object]]] = {
    "view": (VIEW, lambda: run(TEMPLATES["retained when the next view begins"])),
}


@pytest.mark.parametrize("walk", WALKS)
def test_every_transition_is_taken(walk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life, run_all = WALKS[walk]
    taken, after = set[tuple[Enum, Enum]](), life.after

    def noted(turn: tuple[Any, Any]) -> Any:
        taken.add(turn)
        return after(turn)

    monkeypatch.setattr(life, "after", noted)
    run_all()
    assert {(row.event, state) for row in life.rows for state in row.before} == taken
