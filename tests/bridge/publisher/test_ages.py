"""Outbox entries that are too old to be sent, by their message's expiry or by the outbox's own bound."""

from __future__ import annotations

from bridge.contract import Publication
from bridge.publisher.entry import Entry
from bridge.publisher.residents import Ages
from tests.sim.world import NOW, make_world

SECRET = make_world({1: 3}, [], {"site": 1}).secrets[0]


def entry(sequence: int, age_s: float, expiry_s: int | None = None) -> Entry:
    publication = Publication("plant/t", b"", 1, expiry_s=expiry_s, time_ms=int((NOW - age_s) * 1000))
    return Entry(sequence, publication, SECRET, 0, NOW)


def test_a_message_expires_by_its_own_bound_first() -> None:
    entries = [entry(1, 10, 5), entry(2, 10), entry(3, 99), entry(4, 99, 5), entry(5, 0, 5)]
    assert Ages(60).expired(entries, NOW) == ([1, 4], [3])
    assert Ages(None).expired(entries, NOW) == ([1, 4], [])


def test_what_is_in_memory_too_long_is_the_oldest() -> None:
    entries = {n: entry(n, age) for n, age in ((1, 90), (2, 61), (3, 10), (4, 70))}
    assert Ages(60).too_long(entries, NOW) == [1, 2]
    assert Ages(None).too_long(entries, NOW) == []
    first_at = Ages(100).first_at(entries)
    assert first_at is not None
    assert Ages(100).too_long(entries, first_at) == [1]
    assert (Ages(None).first_at(entries), Ages(100).first_at({})) == (None, None)


def test_bounds_are_passed_once_the_time_is_beyond_them() -> None:
    at_both = [entry(1, 60), entry(2, 5, 5)]
    assert Ages(60).expired(at_both, NOW) == ([], [])
    assert Ages(60).expired(at_both, NOW + 0.1) == ([2], [1])
    assert Ages(60).too_long({1: at_both[0]}, NOW) == []
    assert Ages(60).too_long({1: at_both[0]}, NOW + 0.1) == [1]


def test_a_snapshot_ages_since_it_was_due() -> None:
    snapshot = entry(1, 500)
    snapshot.is_snapshot = True
    assert Ages(60).expired([snapshot], NOW + 60) == ([], [])
    assert Ages(60).expired([snapshot], NOW + 61) == ([], [1])
