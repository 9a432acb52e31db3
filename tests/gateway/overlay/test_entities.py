"""Availability topics on a steady clock: a wall clock that steps kills and spares nobody; a restart remembers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bridge.contract import Tick
from bridge.traces import Announce, EntityConnected, EntityGone, EntitySeen
from bridge.traces.availability import AvailabilityEffect
from gateway.base import Clock, alarm
from gateway.overlay.entities import LocalEntities
from tests.gateway.stepped_loop import SteppedLoop

WALL_S = 1_800_000_000.0


class Times:
    """What both clocks show; the wall is stepped by `step_s`."""

    def __init__(self) -> None:
        self.now, self.step_s = 1_000.0, 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: WALL_S + self.now + self.step_s)


class Told:
    def __init__(self) -> None:
        self.effects: list[AvailabilityEffect] = []

    def bodies(self) -> list[dict[str, Any]]:
        told = [json.loads(each.publication.payload) for each in self.effects if isinstance(each, Announce)]
        self.effects.clear()
        return told


@pytest.mark.parametrize("step_s", [-3_600.0, 3_600.0])
def test_a_wall_that_steps_by_an_hour_neither_kills_the_living_nor_spares_the_silent(step_s: float) -> None:
    async def scenario() -> None:
        times, told = Times(), Told()
        entities = LocalEntities("g", "e", times.clock())
        entities.start(told.effects.append, ())
        entities.handle(EntityConnected("speaks", 10))
        entities.handle(EntityConnected("silent", 10))
        assert {body["state"] for body in told.bodies()} == {"online"}
        times.step_s = step_s
        for _ in range(14):
            times.now += 1
            entities.handle(EntitySeen("speaks"))
        entities.handle(Tick())
        assert told.bodies() == []  # 14 s, whatever the wall says
        times.now += 1
        entities.handle(Tick())
        (body,) = told.bodies()
        assert (body["entity"], body["state"]) == ("silent", "offline")
        assert body["since"] == int((WALL_S + times.now + step_s) * 1000)  # told is what the wall shows now
        entities.stop()

    asyncio.run(scenario())


def test_who_was_online_before_a_restart_and_does_not_come_back_is_told_offline() -> None:
    async def scenario() -> None:
        times, told = Times(), Told()
        before = LocalEntities("g", "e", times.clock())
        before.start(told.effects.append, ())
        for client in ("back", "gone", "left"):
            before.handle(EntityConnected(client, 10))
        times.now += 2
        before.handle(EntityGone("left", True, ""))
        before.stop()
        kept = [(one.publication.topic, one.publication.payload) for one in told.effects if isinstance(one, Announce)]
        told.effects.clear()
        newest = {
            **dict(kept), "e/other/x/availability": kept[0][1], "e/g/y/availability": kept[0][1],
            "e/g/z/availability": b"[" * 9_000, "e/g/w/availability": b'{"entity": "w", "since": 1e999}',
        }  # fmt: skip
        times.step_s = -7_200.0  # and the wall was set back meanwhile
        after = LocalEntities("g", "e", times.clock())
        after.start(told.effects.append, newest.items())
        assert len(after.machine) == 2
        times.now += 30
        after.handle(EntityConnected("back", 10))
        times.now += 29
        after.handle(EntitySeen("back"))
        after.handle(Tick())
        assert {body["entity"]: body["state"] for body in told.bodies()} == {"back": "online"}
        times.now += 1
        after.handle(Tick())
        assert [(body["entity"], body["state"]) for body in told.bodies()] == [("gone", "offline")]
        after.stop()

    asyncio.run(scenario())


def test_who_is_silent_is_told_offline_by_the_clock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SteppedLoop(early_s=0.0005)
    monkeypatch.setattr(alarm.asyncio, "get_running_loop", lambda: loop)
    told = Told()
    entities = LocalEntities("g", "e", Clock(lambda: loop.now, lambda: WALL_S + loop.now))
    entities.start(told.effects.append, ())
    entities.handle(EntityConnected("pump", 10))
    loop.run(loop.now + 8)
    entities.handle(EntitySeen("pump"))
    loop.run(loop.now + 14)
    assert [body["state"] for body in told.bodies()] == ["online"]
    loop.run(loop.now + 1.1)
    assert [body["state"] for body in told.bodies()] == ["offline"]
    entities.handle(EntityConnected("pump", 10))
    entities.stop()
    told.bodies()
    loop.run(loop.now + 60)
    assert told.bodies() == []
