"""One reading of a history, by hand: whom it waits for, and what ends it (schedules: `tests/sim/test_history.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from bridge.contract import (
    HISTORY_TOPIC,
    Blame,
    Effect,
    HistoryPage,
    HistoryRequest,
    Received,
    Send,
    Wire,
    before,
    encode_body,
)
from bridge.document import History, Scope
from bridge.reader.past import PastCollector
from bridge.reader.replay import PATIENCE_S, TRIES, WAIT_S, Replay
from tests.sim.world import NOW, World, make_world

REPLICAS = ("r1a", "r1b", "r1c")


@pytest.fixture
def world() -> World:
    return make_world({1: 3}, [], {"desk": 1}, [Scope("plant/#", history=History(7, 100))])


class Reading:
    def __init__(self, world: World) -> None:
        scope = world.overlay.policy.scopes[0]
        numbers = count(1)
        past = PastCollector("desk", scope, world.secrets, world.keys)
        self.replay = Replay(world.overlay, "desk", past, scope, NOW, lambda: next(numbers))
        self.effects: list[Effect] = []
        self.asked: dict[str, HistoryRequest] = {}
        self.took(self.replay.ask_eras(REPLICAS, NOW))

    def took(self, effects: Sequence[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Send):
                self.asked[effect.peer] = HistoryRequest.decode(effect.wire.payload)

    def answer(self, peer: str, now: float = NOW, **page: object) -> None:
        request = self.asked.pop(peer)
        page.setdefault("upto", request.after)
        made = HistoryPage(request.number, 1, **page)  # type: ignore[arg-type]
        assert self.replay.answers(peer, request.number)
        self.took(self.replay.take_page(Received(peer, Wire(HISTORY_TOPIC, made.encode())), now))

    def eras(self, *peers: str, now: float = NOW) -> None:
        for peer in peers:
            self.answer(peer, now, eras=())

    def tick(self, now: float) -> None:
        self.took(self.replay.tick(now))


def test_an_empty_history_ends_after_a_last_lap(world: World) -> None:
    reading = Reading(world)
    reading.eras(*REPLICAS)
    for _ in range(4):
        for peer in list(reading.asked):
            reading.answer(peer, is_end=True)
        reading.tick(NOW)
    assert reading.replay.is_last
    assert reading.replay.is_done


def test_one_that_is_silent_is_left_behind_and_two_are_waited_for(world: World) -> None:
    reading = Reading(world)
    reading.eras("r1a")
    reading.tick(NOW + WAIT_S)
    assert not any(request.scope for request in reading.asked.values())
    reading.eras("r1b", now=NOW + WAIT_S)
    assert [each.peer for each in reading.effects if isinstance(each, Send)][-2:] == ["r1b", "r1c"], "once more"
    reading.tick(NOW + TRIES * WAIT_S + 1)
    assert {peer for peer, request in reading.asked.items() if request.scope} == {"r1a", "r1b"}


def test_who_is_late_each_time_is_left_behind_for_good(world: World) -> None:
    reading, now = Reading(world), NOW
    reading.eras(*REPLICAS)
    for at in range(1, 1_000):
        for peer in ("r1a", "r1b"):
            if peer in reading.asked:
                reading.answer(peer, now, is_end=True)
        if "r1c" not in reading.asked:
            break
        now += WAIT_S - 0.5
        reading.answer("r1c", now, upto=before(int(NOW * 1000) + at))
    assert now - NOW <= PATIENCE_S + WAIT_S


@pytest.mark.parametrize("lie", ["backwards", "beyond"])
def test_a_page_beyond_what_was_asked_for_is_held_against_its_sender(world: World, lie: str) -> None:
    reading = Reading(world)
    reading.eras(*REPLICAS)
    if lie == "backwards":
        reading.answer("r1c", upto=before(0))
    else:
        reading.answer("r1c", bodies=(encode_body("t", b"no header", b"", {}),), upto=before(1 << 50))
    assert [effect.member for effect in reading.effects if isinstance(effect, Blame)] == ["r1c"]
    assert "r1c" not in reading.asked


def test_a_reading_that_f_plus_one_refuse_is_over_and_one_refusal_is_no_end(world: World) -> None:
    reading = Reading(world)
    reading.answer("r1a", is_refused=True)
    assert not reading.replay.is_denied
    reading.answer("r1b", is_refused=True)
    assert reading.replay.is_denied
    assert reading.replay.is_done
