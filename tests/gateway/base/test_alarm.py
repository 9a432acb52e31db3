"""A deadline is rung once, at or after it, whatever an event loop's timers do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.base import alarm as alarm_module
from gateway.base.alarm import DELAY_MIN_S, Alarm
from tests.gateway.stepped_loop import SteppedLoop


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> SteppedLoop:
    loop = SteppedLoop()
    monkeypatch.setattr(alarm_module.asyncio, "get_running_loop", lambda: loop)
    return loop


@pytest.mark.parametrize("early_s", [0.0, 0.0005, 0.3])
def test_an_alarm_never_rings_before_its_deadline_and_rings_once(loop: SteppedLoop, early_s: float) -> None:
    loop.early_s = early_s
    rung: list[float] = []
    alarm = Alarm(lambda: loop.now, lambda: rung.append(loop.now))
    alarm.set(105.0)
    loop.run(104.0)
    assert rung == []
    loop.run(110.0)
    assert len(rung) == 1
    assert 105.0 <= rung[0] <= 105.0 + DELAY_MIN_S
    assert loop.timers == []


def test_a_deadline_that_is_set_from_within_the_call_is_rung_too(loop: SteppedLoop) -> None:
    loop.early_s = 0.0005
    rung: list[float] = []

    def ring() -> None:
        rung.append(loop.now)
        alarm.set(loop.now + 1.0)

    alarm = Alarm(lambda: loop.now, ring)
    alarm.set(101.0)
    loop.run(200.5)
    assert len(rung) == 100


def test_an_earlier_deadline_counts_at_once_and_a_later_one_costs_no_timer_of_its_own(loop: SteppedLoop) -> None:
    rung: list[float] = []
    alarm = Alarm(lambda: loop.now, lambda: rung.append(loop.now))
    alarm.set(110.0)
    alarm.set(103.0)
    begun = loop.begun
    for each in range(1_000):
        alarm.set(103.0 + each / 1_000)
    assert loop.begun == begun
    assert len([timer for timer in loop.timers if not timer.is_cancelled]) == 1
    loop.run(120.0)
    assert rung == [pytest.approx(103.999)]


def test_without_a_deadline_nothing_rings(loop: SteppedLoop) -> None:
    rung: list[float] = []
    alarm = Alarm(lambda: loop.now, lambda: rung.append(loop.now))
    alarm.set(101.0)
    alarm.set(None)
    loop.run(103.0)
    alarm.set(104.0)
    alarm.stop()
    loop.run(106.0)
    assert (rung, loop.timers) == ([], [])


def test_a_deadline_that_has_passed_does_not_spin(loop: SteppedLoop) -> None:
    rung: list[float] = []

    def ring() -> None:
        rung.append(loop.now)
        alarm.set(50.0)

    alarm = Alarm(lambda: loop.now, ring)
    alarm.set(50.0)
    loop.run(100.1)
    assert 99 <= len(rung) <= 101


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_real_loops_lose_no_deadline(loops: str) -> None:
    """300 alarms at once, each with 20 deadlines that nothing but the alarm itself waits for."""

    async def check() -> tuple[int, int]:
        now, ended = asyncio.get_running_loop().time, asyncio.Event()
        left, early = dict.fromkeys(range(300), 20), 0

        def begin(number: int) -> None:
            due = [now() + 0.001 + number / 100_000]

            def ring() -> None:
                nonlocal early
                early += now() < due[0]
                left[number] -= 1
                if left[number]:
                    due[0] = now() + 0.001 + number / 100_000
                    alarm.set(due[0])
                elif not any(left.values()):
                    ended.set()

            alarm = Alarm(now, ring)
            alarm.set(due[0])

        for number in left:
            begin(number)
        await asyncio.wait_for(ended.wait(), 20)
        return sum(left.values()), early

    factory: Any = asyncio.new_event_loop
    if loops == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(check()) == (0, 0)
