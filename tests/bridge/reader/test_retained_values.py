"""The newest retained record of each topic at a newcomer: none older, none deleted, none of a flooder for another's."""

from __future__ import annotations

from itertools import permutations

import pytest

from bridge.reader import retained_values
from bridge.reader.retained_values import RETAINED_WAIT_S, Candidate, RetainedValues
from keys.batchheader import FLOOR, BatchHeader, RetainedId, retained_id
from tests.keys.test_batchheader import header

NOW = 1000.0
SCOPE = 3
ONE, OTHER = b"m" * 16, b"n" * 16


def candidate(time_ms: int, number: int, topic: str = "t", member: bytes = ONE, scope: int = SCOPE) -> Candidate[str]:
    return Candidate(scope, retained_id(None, topic), topic, (time_ms, member, number), f"{topic} {number}")


def floor(below: int, *listed: tuple[str, int], counter: int = 1, scope: int = SCOPE) -> BatchHeader:
    retained = tuple(sorted(RetainedId(retained_id(None, topic), number) for topic, number in listed))
    return header(
        flags=FLOOR, member=ONE, scope=scope, counter=counter, records=1, first=4096, previous=below, content_bytes=0,
        digests=(), retained=retained,
    )  # fmt: skip


def due(values: RetainedValues[str], now: float = NOW + RETAINED_WAIT_S) -> list[str]:
    return [each.item for each in values.due(now)]


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_the_greatest_of_time_member_and_number_is_it_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    values: RetainedValues[str] = RetainedValues()
    offers = [candidate(5, 9), candidate(6, 1), candidate(6, 2)]
    for at in order:
        values.offer(offers[at], NOW)
    assert due(values) == ["t 2"]
    assert due(values) == []


def test_between_members_that_name_the_same_time_all_choose_alike() -> None:
    values: RetainedValues[str] = RetainedValues()
    assert values.offer(candidate(5, 9, member=ONE), NOW)
    assert values.offer(candidate(5, 1, member=OTHER), NOW)
    assert not values.offer(candidate(5, 10, member=ONE), NOW)


def test_each_topic_waits_from_its_first_candidate_on() -> None:
    values: RetainedValues[str] = RetainedValues()
    assert values.next_deadline is None
    values.offer(candidate(5, 1), NOW)
    values.offer(candidate(5, 2, "u"), NOW + 0.25)
    values.offer(candidate(6, 3), NOW + 0.4)
    assert values.next_deadline == NOW + RETAINED_WAIT_S
    assert due(values, NOW + RETAINED_WAIT_S - 0.01) == []
    assert due(values, NOW + RETAINED_WAIT_S) == ["t 3"]
    assert values.next_deadline == NOW + 0.25 + RETAINED_WAIT_S
    assert due(values, NOW + 9) == ["u 2"]
    assert values.next_deadline is None


def test_a_replay_is_no_news_and_what_is_newer_still_comes() -> None:
    values: RetainedValues[str] = RetainedValues()
    values.offer(candidate(5, 1), NOW)
    assert not values.offer(candidate(5, 1), NOW)
    due(values)
    assert not values.offer(candidate(5, 1), NOW + 1)
    assert not values.offer(candidate(4, 9), NOW + 1)
    assert values.offer(candidate(6, 2), NOW + 1)


def test_what_came_live_meanwhile_is_not_undone() -> None:
    values: RetainedValues[str] = RetainedValues()
    values.offer(candidate(5, 1), NOW)
    values.delivered("t", (6, ONE, 2))
    values.delivered("t", (4, ONE, 0))  # an older one takes nothing back
    assert due(values) == []
    assert not values.is_newer("t", (6, ONE, 2))
    assert values.is_newer("t", (6, ONE, 3))
    assert values.is_newer("u", (0, ONE, 0))


def test_a_live_record_older_than_the_retained_one_and_our_subscription_is_overtaken() -> None:
    values: RetainedValues[str] = RetainedValues()
    values.delivered("t", (100, ONE, 5))
    assert values.is_overtaken("t", (90, ONE, 4), accepted_ms=90)
    assert not values.is_overtaken("t", (90, ONE, 4), accepted_ms=89), "after our subscription everything counts"
    assert not values.is_overtaken("t", (101, ONE, 6), accepted_ms=200)
    assert not values.is_overtaken("u", (90, ONE, 4), accepted_ms=90)


def test_below_a_floor_only_what_it_lists_is_retained() -> None:
    values: RetainedValues[str] = RetainedValues()
    values.floor(floor(50, ("kept", 20)))
    assert not values.offer(candidate(5, 49, "deleted"), NOW)
    assert not values.offer(candidate(5, 19, "kept"), NOW), "an older value of it"
    assert values.offer(candidate(5, 20, "kept"), NOW)
    assert values.offer(candidate(5, 50, "later"), NOW)
    assert values.offer(candidate(5, 7, "anothers", member=OTHER), NOW)
    assert values.offer(candidate(5, 7, "elsewhere", scope=9), NOW)


def test_a_floor_that_comes_while_a_value_waits_counts_too() -> None:
    values: RetainedValues[str] = RetainedValues()
    values.offer(candidate(5, 7, "deleted"), NOW)
    values.floor(floor(50))
    assert due(values) == []
    assert values.is_newer("deleted", (1, ONE, 1)), "it was never delivered"


def test_an_older_floor_changes_nothing() -> None:
    values: RetainedValues[str] = RetainedValues()
    values.floor(floor(50, counter=2))
    values.floor(floor(90, ("t", 7), counter=1))
    assert not values.offer(candidate(5, 7), NOW)
    assert values.offer(candidate(5, 60), NOW)
    values.floor(floor(90, counter=3))
    assert not values.offer(candidate(6, 61), NOW)


def test_a_flooder_of_topics_displaces_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_values, "WAITING_MAX", 3)
    values: RetainedValues[str] = RetainedValues()
    values.offer(candidate(5, 1, "honest"), NOW)
    for number in range(6):
        values.offer(candidate(5, number, f"flood {number}", OTHER), NOW)
    assert due(values) == ["honest 1", "flood 4 4", "flood 5 5"]
    assert values.next_deadline is None
