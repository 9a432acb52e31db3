"""What a tracker knows of one entity; who is looked at next among tens of thousands."""

from __future__ import annotations

import random

from bridge.traces.following import NUMBERS_MAX, Followed, Looks, Source
from bridge.traces.kinds import EVERYTHING
from keys.delegation import Delegated, Token, Trace

NOW = 1_800_000_000.0


def test_looks_come_in_order_and_the_earlier_of_two_counts() -> None:
    followed = {f"e{place}": Followed(EVERYTHING) for place in range(500)}
    looks, rng, due = Looks(), random.Random(1), dict[str, float]()
    for _ in range(5):
        for entity, one in followed.items():
            at = NOW + rng.uniform(0, 100)
            due[entity] = min(due.get(entity, at), at)
            looks.put(entity, one, at, followed)
    gone = [f"e{place}" for place in range(0, 500, 7)]
    for entity in gone:
        del followed[entity], due[entity]
    taken = []
    while (first := looks.first(followed)) is not None:
        assert looks.take(followed, first[0] - 0.001) is None, "not before its time"
        entity = looks.take(followed, first[0])
        assert entity == first[1]
        taken.append((first[0], entity))
    assert taken == sorted((at, entity) for entity, at in due.items())


def test_stale_entries_do_not_pile_up() -> None:
    followed = {"pump": Followed(EVERYTHING)}
    looks = Looks()
    for step in range(10_000):
        looks.put("pump", followed["pump"], NOW - step, followed)
    assert len(looks._heap) <= 4 + 64


def test_what_a_source_said_is_news_once_and_what_may_be_forgotten_never() -> None:
    token = Token(bytes(16), bytes(32), Delegated.PUBLISH, 0, 1)
    source = Source()
    for place in range(NUMBERS_MAX + 1):
        key, trace = (bytes([place]), "topic"), Trace(token, 10, 5, 1_000 + place, b"{}")
        assert source.is_news(key, trace)
        source.heard(key, trace)
        assert not source.is_news(key, trace)
    assert len(source.numbers) == NUMBERS_MAX
    assert not source.is_news((bytes([0]), "topic"), Trace(token, 10, 9, 1_000, b"{}")), "of a key that was forgotten"
    assert source.is_news((bytes([0]), "topic"), Trace(token, 10, 9, 1_001, b"{}"))
