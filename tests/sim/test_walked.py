"""Schedules of the simulator take every transition that a table of states declares: no row is there for nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest

from bridge.base import Transitions
from bridge.contract import Subscribed, Unsubscribed
from bridge.document.succession import VIEW
from bridge.reader.interest import SUBSCRIPTION
from bridge.replica.resplitting import DATA_KEY
from bridge.wire.admission import GATEWAY_SESSION_S
from tests.sim.schedules import TEMPLATES, Schedule, run
from tests.sim.stage import READER
from tests.sim.world import NOW, Traffic, make_world
from tests.sim.world import subscribe as wants


def subscribe_and_leave() -> None:
    """Clients subscribe and leave; the subscriber dies and goes on, and dies again for longer than it may go on."""
    schedule = Schedule()
    schedule.handle(READER, Unsubscribed("plant/#"))
    schedule.handle(READER, Subscribed("plant/#"))
    schedule.act("reborn", 1)
    schedule.act("flow", 0)
    schedule.clear(READER)
    schedule.start(READER)
    schedule.tick(schedule.now + GATEWAY_SESSION_S + 2)
    schedule.handle(READER, Subscribed("plant/#"))


def carry_keys() -> None:
    """Keys go from one region to the next: from many replicas, and from a single one."""
    for replicas in (5, 1):
        world = make_world({1: replicas, 2: 3}, [(1, 2)], {"site": 1, "control": 2})
        kernel = world.kernel(random.Random(1), (0.001, 0.002))
        wants(kernel, "control", "plant/#")
        Traffic("site").publish(kernel, NOW + 5, "plant/a", b"21.5")
        kernel.run(NOW + 8)


WALKS: dict[str, tuple[Transitions[Any, Any], Callable[[], object]]] = {
    "view": (VIEW, lambda: run(TEMPLATES["retained when the next view begins"])),
    "data key": (DATA_KEY, carry_keys),
    "subscription": (SUBSCRIPTION, subscribe_and_leave),
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
