"""What a tracker knows of one entity; who is looked at next among tens of thousands."""

from __future__ import annotations

import random

from bridge.traces.kinds import EVERYTHING
from bridge.tracking.following import NUMBERS_MAX, Followed, Looks, Source, opened, try_key
from keys.delegation import Delegated, Token, Trace
from tests.keys.test_delegation import TRACE

NOW = 1_800_000_000.0


def test_looks_come_in_order_and_the_earlier_of_two_counts() -> None:
    followed = {f"e{place}": Followed(EVERYTHING) for place in range(500)}
    looks, rng, due = Looks(), random.Random(1), dict[str, float]()
    for _ in range(5):
        for entity, one in followed.items():
            at = NOW + rng.uniform(0, 100)
            due[entity] = min(due.get(entity, at), at)
            looks.plan_check(entity, one, at, followed)
    gone = [f"e{place}" for place in range(0, 500, 7)]
    for entity in gone:
        del followed[entity], due[entity]
    taken = []
    while (first := looks.first_check(followed)) is not None:
        assert looks.take_entity(followed, first[0] - 0.001) is None, "not before its time"
        entity = looks.take_entity(followed, first[0])
        assert entity == first[1]
        taken.append((first[0], entity))
    assert taken == sorted((at, entity) for entity, at in due.items())


def test_stale_entries_do_not_pile_up() -> None:
    followed = {"pump": Followed(EVERYTHING)}
    looks = Looks()
    for step in range(10_000):
        looks.plan_check("pump", followed["pump"], NOW - step, followed)
    assert len(looks._heap) <= 4 + 64


def test_what_a_source_said_is_news_once_and_what_may_be_forgotten_never() -> None:
    token = Token(bytes(16), bytes(32), Delegated.PUBLISH, 0, 1)
    source = Source()
    for place in range(NUMBERS_MAX + 1):
        key, trace = (bytes([place]), "topic"), Trace(token, 10, 5, 1_000 + place, b"{}")
        assert source.is_news(key, trace)
        source.note_trace(key, trace)
        assert not source.is_news(key, trace)
    assert len(source.numbers) == NUMBERS_MAX
    assert not source.is_news((bytes([0]), "topic"), Trace(token, 10, 9, 1_000, b"{}")), "of a key that was forgotten"
    assert source.is_news((bytes([0]), "topic"), Trace(token, 10, 9, 1_001, b"{}"))


TOKEN = Token(bytes(16), bytes(32), Delegated.PUBLISH, 0, 1)


def trace(number: int, time_ms: int = 1_000) -> Trace:
    return Trace(TOKEN, 10, number, time_ms, b"{}")


def test_a_later_number_is_news_whatever_its_time_and_the_same_or_an_earlier_one_is_none() -> None:
    source, key = Source(), (b"k", "topic")
    assert source.is_news(key, trace(5, 0)), "of whom nothing was heard"
    source.note_trace(key, trace(5))
    assert [source.is_news(key, trace(number, time_ms=1)) for number in (4, 5, 6)] == [False, False, True]
    assert source.is_news((b"k", "another topic"), trace(5))


def test_who_was_silent_longest_is_forgotten_and_what_it_said_last_bounds_what_is_news() -> None:
    source = Source()
    for place in range(NUMBERS_MAX):
        source.note_trace((bytes([place]), "t"), trace(1, 9_000 - place))
    source.note_trace((bytes([0]), "t"), trace(2, 9_500))
    source.note_trace((b"new", "t"), trace(1, 9_600))
    assert (bytes([0]), "t") in source.numbers
    assert (bytes([1]), "t") not in source.numbers
    assert source.forgotten_ms == 8_999
    source.note_trace((b"newer", "t"), trace(1, 9_600))
    assert source.forgotten_ms == 8_999, "the latest of those that were forgotten"
    assert [source.is_news((b"unknown", "t"), trace(1, time_ms)) for time_ms in (8_999, 9_000)] == [False, True]


def test_a_look_is_taken_when_it_is_due_and_may_then_be_put_later() -> None:
    followed = {"pump": Followed(EVERYTHING), "fan": Followed(EVERYTHING)}
    looks = Looks()
    assert (looks.first_check(followed), looks.take_entity(followed, NOW)) == (None, None)
    looks.plan_check("pump", followed["pump"], NOW + 5, followed)
    looks.plan_check("pump", followed["pump"], NOW + 9, followed)
    looks.plan_check("pump", followed["pump"], NOW + 5, followed)
    assert looks.first_check(followed) == (NOW + 5, "pump")
    assert len(looks._heap) == 1, "later and the same are no looks of their own"
    looks.plan_check("fan", followed["fan"], NOW + 7, followed)
    assert (looks.take_entity(followed, NOW + 5), looks.take_entity(followed, NOW + 6)) == ("pump", None)
    looks.plan_check("pump", followed["pump"], NOW + 9, followed)
    assert [looks.take_entity(followed, NOW + 9) for _ in range(3)] == ["fan", "pump", None]


def test_a_look_of_who_is_followed_anew_is_its_own() -> None:
    followed = {"pump": Followed(EVERYTHING)}
    looks = Looks()
    looks.plan_check("pump", followed["pump"], NOW, followed)
    followed["pump"] = Followed(EVERYTHING)
    assert looks.take_entity(followed, NOW + 1) is None
    looks.plan_check("pump", followed["pump"], NOW + 2, followed)
    assert looks.take_entity(followed, NOW + 2) == "pump"


def test_stale_entries_leave_those_that_count() -> None:
    followed = {name: Followed(EVERYTHING) for name in ("pump", "fan")}
    looks = Looks()
    looks.plan_check("fan", followed["fan"], NOW - 50, followed)
    for step in range(200):
        looks.plan_check("pump", followed["pump"], NOW - step, followed)
        assert len(looks._heap) <= 4 * 2 + 64
    assert [looks.take_entity(followed, NOW) for _ in range(3)] == ["pump", "fan", None]


def test_a_sealed_trace_is_opened_by_the_key_of_its_witness_or_any_that_is_known() -> None:
    first, second = b"1" * 32, b"2" * 32
    sealed = TRACE.sealed_under(first, bytes(12))
    assert try_key(sealed, first) == TRACE.body
    assert try_key(sealed, second) is None
    source, one = Source(), Followed(EVERYTHING)
    assert opened(one, source, TRACE) == TRACE.body, "it is not sealed"
    assert opened(one, source, sealed) is None
    one.keys.extend((second, first))
    assert opened(one, source, sealed) == TRACE.body
    assert source.key == first
    one.keys.clear()
    assert opened(one, source, sealed) == TRACE.body, "what opened the last one is tried first"
    assert opened(one, source, TRACE.sealed_under(second, bytes(12))) is None
    assert source.key == first


def test_of_who_is_followed_anew_nothing_is_known() -> None:
    one = Followed(EVERYTHING)
    assert (one.claimed_ms, one.proven, one.heard, one.known, one.lost) == (-1, False, False, False, False)
    assert (one.due, one.since, one.ask_at, one.asked, one.request) == (float("inf"), 0.0, 0.0, 0, b"")
    assert "kkk" not in repr(Source(key=b"kkk"))
    one.keys.append(b"kkk")
    assert "kkk" not in repr(one)
