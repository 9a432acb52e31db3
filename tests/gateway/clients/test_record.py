"""A client's record: acknowledgements that several decide, and one clock for all deadlines."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base import FairTurns
from gateway.clients import record
from gateway.clients.record import COLLECT_S, Client, Deadlines, OwedAck, Undecided
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.session import ServerSession
from gateway.plugins import EdgeSession
from tests.gateway.harness import on_loop
from tests.gateway.turned import Turned
from tests.waits import until

NOW = 1000.0


def client(name: str = "c") -> Client:
    return Client(ServerSession(name), EdgeSession())


def owed(answers: int = 1) -> OwedAck:
    made = OwedAck(Publish("t", b"", 1))
    made.answers = answers
    return made


@pytest.mark.parametrize(
    "answers",
    [
        [(0, None), (0x87, None), (0x10, 0x87)],
        [(0, None), (0x97, 0x97), (0, 0x97)],  # what comes behind a message to be repeated must not be taken
    ],
)
def test_the_worst_answer_counts_once_all_have_answered_or_one_has_it_repeated(
    answers: list[tuple[int, int | None]],
) -> None:
    asked, one = client(), owed(3)
    for code, decided in answers:
        asked.decide(one, code)
        assert one.code == decided


def test_what_is_decided_stays_so_that_a_later_answer_ends_no_other_connection() -> None:
    asked, one = client(), owed(2)
    asked.decide(one, 0x97)
    asked.is_refused = False
    asked.decide(one, 0x97)
    assert not asked.is_refused


def test_a_code_that_is_known_is_no_question() -> None:
    assert OwedAck(Publish("t", b"", 1), 0x87).code == 0x87


def test_acknowledgements_keep_their_order_and_cost_nothing_until_there_are_some() -> None:
    one, first, second = client(), owed(), owed()
    assert one.acks == ()
    one.owe(first)
    one.owe(second)
    assert list(one.acks) == [first, second]
    assert (one.client_id, repr(one)) == ("c", "Client('c')")


@on_loop
async def test_a_will_that_is_asked_about_is_undecided() -> None:
    waits = Undecided()
    assert not waits.is_back
    assert not waits.decision.done()


class Clock:
    """Time of the test's; `following`: what each client wants next."""

    def __init__(self) -> None:
        self.now = NOW
        self.called: list[tuple[str, float]] = []
        self.following: dict[str, float] = {}
        self.deadlines = Deadlines(lambda: self.now, self._due, FairTurns())

    def _due(self, one: Client, now: float) -> float | None:
        self.called.append((one.client_id, now))
        return self.following.pop(one.client_id, None)

    def tick(self, at: float) -> list[str]:
        self.now, self.called = at, []
        self.deadlines.attend_due_clients(at, 2)
        return [name for name, _ in self.called]


@on_loop
async def test_everybody_is_attended_to_when_its_time_has_come_and_not_before() -> None:
    clock, a, b = Clock(), client("a"), client("b")
    clock.deadlines.wake(a, NOW + 2, 2)
    clock.deadlines.wake(b, NOW + 1, 2)
    clock.deadlines.wake(b, None, 2)
    assert [clock.tick(NOW + at) for at in (0.9, 1, 2, 3)] == [[], ["b"], ["a"], []]
    clock.deadlines.stop()


@on_loop
async def test_an_earlier_wish_counts_and_a_later_one_changes_nothing() -> None:
    clock, a = Clock(), client("a")
    clock.deadlines.wake(a, NOW + 5, 1)
    clock.deadlines.wake(a, NOW + 9, 1)
    assert a.wake_at == NOW + 5
    clock.deadlines.wake(a, NOW + 2, 1)
    assert clock.tick(NOW + 2) == ["a"]
    assert clock.tick(NOW + 5) == [], "the entry before is stale"
    assert a.wake_at is None
    clock.deadlines.stop()


@on_loop
async def test_who_wants_attention_again_gets_it_not_at_once() -> None:
    clock, a = Clock(), client("a")
    clock.following["a"] = NOW - 50
    clock.deadlines.wake(a, NOW, 1)
    assert clock.tick(NOW) == ["a"]
    assert a.wake_at == NOW + COLLECT_S
    clock.deadlines.stop()


@on_loop
async def test_nobody_attends_to_a_session_that_has_ended() -> None:
    clock, a = Clock(), client("a")
    clock.deadlines.wake(a, NOW + 1, 1)
    a.alive = False
    assert clock.tick(NOW + 1) == []
    clock.deadlines.stop()


@on_loop
async def test_entries_that_nobody_waits_for_are_cleared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "STALE_ENTRIES", 5)
    clock, a = Clock(), client("a")
    for number in range(100):
        clock.deadlines.wake(a, NOW + 200 - number, 1)
        assert len(clock.deadlines._heap) <= 2 + 5 + 1
    assert clock.tick(NOW + 101) == ["a"]
    clock.deadlines.stop()


@on_loop
async def test_one_timer_serves_all_and_the_earliest_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "COLLECT_S", 0.0)
    clock, a, b = Clock(), client("a"), client("b")
    clock.deadlines.wake(a, NOW + 60, 2)
    first = clock.deadlines._timer
    clock.deadlines.wake(b, NOW + 90, 2)
    assert clock.deadlines._timer is first
    clock.deadlines.wake(b, NOW, 2)
    assert clock.deadlines._timer is not first
    await asyncio.sleep(0.001)
    assert clock.called == [("b", NOW)]
    clock.deadlines.stop()
    assert clock.deadlines._timer is None


@pytest.mark.parametrize(("code", "refuses"), [(0x00, False), (0x97, True), (0x87, False), (0x95, False)])
def test_a_refusal_that_repeating_may_cure_is_noted_however_it_comes(code: int, refuses: bool) -> None:
    late, at_once = client(), client()
    one = OwedAck(Publish("t", b"", 1))
    late.owe(one)
    assert not late.is_refused
    late.decide(one, code)
    at_once.owe(one)
    assert late.is_refused is at_once.is_refused is one.refuses is refuses


@pytest.mark.attack(187)
@on_loop
async def test_thousands_whose_time_comes_at_once_are_attended_to_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a hundred thousand sessions of one client, whose wills fall due in the same moment."""
    monkeypatch.setattr(record, "TURN_S", 0.0)
    clock, turns = Clock(), Turned()
    for number in range(20):
        clock.deadlines.wake(client(f"c{number}"), NOW, 20)
    monkeypatch.setattr(clock.deadlines, "_due", lambda one, now: turns.add())
    clock.deadlines._fire()
    await until(lambda: turns.done == 20)
    turns.stop()
    assert turns.most <= 2
    clock.deadlines.stop()
