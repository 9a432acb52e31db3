"""What a replica's links carried since it was asked last."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract import LOADS_EVERY_S, Loads
from gateway.overlay import loading
from gateway.overlay.loading import Loading


def lane(sent: int, in_flight: int = 0, waiting: int = 0) -> Any:
    return SimpleNamespace(load=(in_flight, waiting, 0), figures=SimpleNamespace(sent=sent))


def test_what_came_and_what_was_acknowledged_in_between() -> None:
    lanes = {"busy": lane(10), "idle": lane(5)}
    said = Loading(lanes, lambda: True)
    assert said.loads() == Loads(())
    lanes["busy"] = lane(17, in_flight=3, waiting=1)
    assert said.loads() == Loads((("busy", 7, 3, 4),))
    assert said.loads() == Loads((("busy", 0, 0, 4),)), "it stands still"
    lanes["busy"] = lane(17)
    assert said.loads() == Loads((("busy", 0, 4, 0),))
    assert said.loads() == Loads(())


def test_a_new_link_begins_with_what_waits_there_and_a_gone_one_is_forgotten() -> None:
    lanes = {"a": lane(3, in_flight=2)}
    said = Loading(lanes, lambda: True)
    assert said.loads() == Loads((("a", 0, 0, 2),))
    del lanes["a"]
    assert said.loads() == Loads(())
    lanes["a"] = lane(0)
    assert said.loads() == Loads(())


def test_it_is_said_every_window_where_somebody_wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    wanted = [False, True, True]
    told: list[Loads] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(loading.asyncio, "sleep", sleep)
    monkeypatch.setattr(loading, "until_next", lambda every_s: every_s)
    said = Loading({"a": lane(1, in_flight=1)}, lambda: wanted[len(slept)])
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(said.run(told.append))
    assert slept == [loading.IDLE_S, LOADS_EVERY_S, LOADS_EVERY_S]
    assert told == [Loads((("a", 0, 0, 1),))]


def test_work_is_what_was_done_since_it_was_asked_last() -> None:
    said = Loading({"a": lane(1, in_flight=2, waiting=3), "b": lane(0, waiting=4)}, lambda: False)
    said.worked()
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    worked = said.worked()
    assert worked.queued == 9
    assert 20_000 <= worked.processor_us < 2_000_000
    assert said.worked().processor_us < worked.processor_us
