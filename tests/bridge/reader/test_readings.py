"""Readings of one gateway: shared, bounded, stopped. How they read on is in `tests/sim/test_history.py`."""

from __future__ import annotations

import pytest

from bridge.contract import HISTORY_TOPIC, HistoryPage, ReadAgain, ReadAgainDone, Received, Send, Wire
from bridge.document import History, Scope
from bridge.reader.readings import READINGS_MAX, Readings
from keys.errors import BadFrame
from tests.sim.world import NOW, make_world

SCOPES = [Scope("plant/#", history=History(7, 100)), Scope("open/#")]


@pytest.fixture
def readings() -> Readings:
    world = make_world({1: 3}, [], {"desk": 1}, SCOPES)
    from bridge.reader import Collector

    collector = Collector(world.overlay, "desk", world.secrets, world.keys)
    made = Readings(world.overlay, "desk", world.secrets, world.keys, collector, 1 << 20)
    for peer in ("r1a", "r1b", "r1c"):
        made.link_up(peer, NOW)
    return made


def asked(reading: int, since_s: float = NOW - 100, scope: int = 1, owner: str | None = None) -> ReadAgain:
    return ReadAgain(reading, scope, int(since_s * 1000), f"user {reading}" if owner is None else owner)


def test_readings_of_one_scope_and_time_are_one(readings: Readings) -> None:
    assert len(readings.read_again(asked(1), NOW)) == 3
    assert readings.read_again(asked(2), NOW) == []
    assert len(readings.read_again(asked(3, NOW - 500), NOW)) == 3


def test_a_scope_without_a_history_ends_at_once(readings: Readings) -> None:
    assert readings.read_again(asked(1, scope=2), NOW) == [ReadAgainDone(1, False)]
    assert readings.read_again(asked(2, scope=99), NOW) == [ReadAgainDone(2, False)]
    assert not readings


def test_more_than_a_few_wait_for_their_turn(readings: Readings) -> None:
    for number in range(READINGS_MAX):
        assert readings.read_again(asked(number, NOW - 10 * number - 10), NOW)
    assert readings.read_again(asked(99, NOW - 1_000), NOW) == []
    assert readings.read_again(asked(98, NOW - 2_000), NOW) == []
    assert [each for each in readings.stop(0, NOW) if isinstance(each, Send)], "the next one begins"
    for number in (*range(READINGS_MAX), 98, 99):
        readings.stop(number, NOW)
    assert not readings
    assert readings.next_deadline is None


def test_pages_of_nobody_are_dropped_and_what_is_none_is_refused(readings: Readings) -> None:
    page = HistoryPage(5, is_end=True).encode()
    assert readings.take_page(Received("r1a", Wire(HISTORY_TOPIC, page)), NOW) == []
    with pytest.raises(BadFrame):
        readings.take_page(Received("r1a", Wire(HISTORY_TOPIC, b"no page")), NOW)


@pytest.mark.attack(167)
def test_one_owner_that_reads_all_the_time_leaves_places_for_others_and_is_behind_them(readings: Readings) -> None:
    """Attack: one user asks for all of the past, again and again: others waited behind all of that."""
    greedy = [
        bool(readings.read_again(asked(number, NOW - 10 * number - 10, owner="greedy"), NOW)) for number in range(20)
    ]
    assert greedy == [True] * (READINGS_MAX // 2) + [False] * (20 - READINGS_MAX // 2)
    others = [bool(readings.read_again(asked(100 + n, NOW - 1_000 * n - 1_000), NOW)) for n in range(5)]
    assert others == [True, True, True, True, False]
    effects = readings.stop(0, NOW)  # a place of the greedy one
    assert effects
    assert {each.owner for each in readings._queue.values()} == {"greedy"}, "the fifth of the others was first"


def test_one_whose_client_has_no_room_is_no_reason_for_others_to_wait(readings: Readings) -> None:
    for number in range(READINGS_MAX):
        readings.read_again(asked(number, NOW - 10 * number - 10), NOW)
    assert readings.read_again(asked(99, NOW - 1_000), NOW) == []
    assert [each for each in readings.hold_reading(0, True, NOW) if isinstance(each, Send)]
