"""Who comes back after a restart, and how long the others are waited for: as long as they come, and no longer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bridge.contract.machine import Tick
from bridge.traces import tracer as tracing
from bridge.traces.kinds import TraceKind
from bridge.traces.presets import LAN
from bridge.traces.rejoining import COMES_PART, COMES_S, REJOIN_MAX_S, REJOIN_S, Rejoining
from bridge.traces.self_health import MANY_LEAST, MANY_SCORE, SICK
from bridge.traces.tracer import Tracer
from tests.bridge.traces.test_tracer import AUTHORITY, NODE, NOW, Entity, check_books, news

LAST_LOOK_S = 2 * COMES_S
AGAIN = "not back after a restart of its broker"


class Crowd:
    """Entities that were registered, and their broker, which began anew at `NOW`."""

    def __init__(self, number: int) -> None:
        before = Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, random.Random(1).randbytes)
        self.pumps = [Entity(before, f"pump-{n}", n.to_bytes(16)) for n in range(number)]
        for pump in self.pumps:
            pump.register()
            pump.authorise()
        self.tracer = Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, random.Random(2).randbytes)
        self.tracer.restore([record for _, record in before.records() if record is not None], NOW)
        self.failed_at: list[float] = []

    def run(self, until_s: float) -> None:
        """By then, since the restart."""
        while (due := self.tracer.next_deadline) is not None and due <= NOW + until_s:
            effects = self.tracer.handle(Tick(), due)
            told = [each for pump in self.pumps for each in news(effects, pump.advertisement.topic)]
            late = (TraceKind.FAILED, {"why": AGAIN})
            self.failed_at += [due - NOW] * sum((kind, {"why": fields.get("why")}) == late for kind, fields in told)
            check_books(self.tracer)

    def comes(self, place: int, at_s: float) -> None:
        self.run(at_s)
        pump = self.pumps[place]
        pump.tracer, pump.now = self.tracer, NOW + at_s
        pump.register()


@pytest.mark.long
def test_while_others_still_come_back_nobody_is_told_failed_for_being_late() -> None:
    crowd = Crowd(16)
    for place in range(15):
        crowd.comes(place, 7.0 * (place + 1))
    assert crowd.failed_at == []
    crowd.run(300)
    (at,) = crowd.failed_at
    assert 105 < at <= 105 + LAST_LOOK_S + COMES_S


@pytest.mark.long
def test_who_come_one_by_one_hold_up_the_news_of_a_death_no_longer_than_is_stated() -> None:
    crowd = Crowd(30)
    for place in range(28):
        crowd.comes(place, 10.0 * (place + 1))
    assert len(crowd.failed_at) >= 2
    assert crowd.failed_at[0] == REJOIN_MAX_S


def test_one_who_registers_again_and_again_holds_up_nobody() -> None:
    crowd = Crowd(3)
    for place in range(40):
        crowd.comes(0, 2.0 * (place + 1))
    assert crowd.failed_at[:1] == [REJOIN_S]


def test_a_sick_broker_tells_nobody_failed_until_it_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, ours = Crowd(3), tracing.SelfHealth.turn
    sick: list[bool] = [True]

    def turn(health: tracing.SelfHealth, late_s: float, overdue: int, of: int, now: float) -> None:
        ours(health, late_s, overdue, of, now)
        health.score = SICK if sick else 0.0

    monkeypatch.setattr(tracing.SelfHealth, "turn", turn)
    crowd.run(REJOIN_S + 40)
    assert crowd.failed_at == []
    sick.clear()
    crowd.run(REJOIN_S + 40 + COMES_S)
    assert len(crowd.failed_at) == 3


def test_who_is_not_back_hides_not_that_most_of_those_who_are_owe_an_answer() -> None:
    crowd = Crowd(3 * MANY_LEAST)
    for place in range(MANY_LEAST):
        crowd.comes(place, 0.1)
    assert crowd.tracer.self_health.score == 0.0
    crowd.run(8)  # nobody answers a ping
    assert crowd.tracer.self_health.score >= MANY_SCORE


# ------------------------------------------------------------------------------------------------- by itself


@pytest.fixture
def waiting() -> Callable[[int], Rejoining]:
    def made(number: int) -> Rejoining:
        rejoining = Rejoining()
        for _ in range(number):
            rejoining.waits(NOW)
        return rejoining

    return made


def test_nobody_comes_and_the_usual_time_is_all(waiting: Callable[[int], Rejoining]) -> None:
    rejoining = waiting(1_000)
    assert rejoining.until(NOW + REJOIN_S - 1, 0.0) == NOW + REJOIN_S
    assert rejoining.until(NOW + REJOIN_S, 0.0) <= NOW + REJOIN_S


def test_the_time_counts_from_the_first_who_is_missing_until_nobody_is() -> None:
    rejoining = Rejoining()
    assert [rejoining.waits(NOW + after_s) for after_s in (0, 20)] == [NOW + REJOIN_S] * 2
    assert rejoining.missing == 2
    rejoining.gone()
    assert rejoining.missing == 1
    assert rejoining.until(NOW, 0.0) == NOW + REJOIN_S
    rejoining.gone()
    assert rejoining.waits(NOW + 500) == NOW + 500 + REJOIN_S


def test_whether_others_still_come_is_looked_at_twice_in_the_time_in_which_they_count() -> None:
    rejoining = Rejoining()
    rejoining.waits(NOW)
    rejoining.count_return(NOW + REJOIN_S)
    assert rejoining.until(NOW + REJOIN_S, 0.0) == NOW + REJOIN_S + COMES_S / 2


def test_a_few_of_very_many_are_no_sign_that_the_others_come(waiting: Callable[[int], Rejoining]) -> None:
    number = 10_000
    few, enough = waiting(number), waiting(number)
    at = NOW + REJOIN_S
    for rejoining, came in ((few, number * COMES_PART - 20), (enough, number * COMES_PART)):
        for _ in range(int(came)):
            rejoining.gone()
            rejoining.count_return(at - 1)
    assert few.until(at, 0.0) <= at
    assert enough.until(at, 0.0) > at


def test_what_came_long_ago_does_not_count(waiting: Callable[[int], Rejoining]) -> None:
    rejoining = waiting(10)
    rejoining.gone()
    rejoining.count_return(NOW + REJOIN_S - 1)
    assert rejoining.until(NOW + REJOIN_S, 0.0) > NOW + REJOIN_S
    assert rejoining.until(NOW + REJOIN_S + LAST_LOOK_S, 0.0) <= NOW + REJOIN_S + LAST_LOOK_S


@pytest.mark.parametrize("score", [0.0, SICK, 1.0])
def test_at_the_stated_end_nothing_holds_it_up(waiting: Callable[[int], Rejoining], score: float) -> None:
    rejoining = waiting(10)
    end = NOW + REJOIN_MAX_S
    rejoining.count_return(end - 1)
    assert end - 1 < rejoining.until(end - 1, score) <= end
    assert rejoining.until(end, score) <= end
