"""Batches at a reader, in their turn: gaps wait, are given up, and are delivered late, once."""

from __future__ import annotations

from bridge.reader import Chain
from bridge.reader.heads import GAPS_MAX
from keys.batchheader import VOID, BatchHeader
from tests.keys.test_batchheader import header

REPAIR_S = 10.0


def batch(first: int, count: int = 1, previous: int = 0, key: int = 1, **fields: object) -> BatchHeader:
    return header(
        first=first, records=count, previous=previous, previous_ms=1000 if previous else 0, key_id=bytes([key] * 16),
        **fields,
    )  # fmt: skip


def runs(chain: Chain[str], now: float, accepted_ms: int = 0) -> list[tuple[str, list[tuple[int, int]], bool]]:
    return [(ready.item, ready.runs, ready.late) for ready in chain.advance(now, REPAIR_S, accepted_ms)]


def test_one_that_comes_first_waits_for_what_it_follows() -> None:
    chain: Chain[str] = Chain()
    chain.offer(batch(1), "a", 0.0)
    assert runs(chain, 0.0) == [("a", [(1, 1)], False)]
    chain.offer(batch(9, previous=5), "c", 1.0)
    assert runs(chain, 1.0) == []
    assert [*chain.gaps(0)] == [(2, 5)]
    assert chain.next_deadline(REPAIR_S) == 11.0
    chain.offer(batch(5, previous=1), "b", 2.0)
    assert runs(chain, 2.0) == [("b", [(5, 5)], False), ("c", [(9, 9)], False)]


def test_what_is_given_up_is_delivered_late_and_once() -> None:
    chain: Chain[str] = Chain()
    chain.offer(batch(9, previous=5), "c", 0.0)
    assert runs(chain, 9.9) == []
    assert runs(chain, 10.0) == [("c", [(9, 9)], False)]
    assert chain.wants(batch(4, 2))
    chain.offer(batch(4, 2, previous=3), "b", 11.0)
    assert runs(chain, 11.0) == [("b", [(4, 5)], True)]
    assert not chain.wants(batch(4, 2))


def test_what_is_older_than_the_subscription_is_not_waited_for() -> None:
    chain: Chain[str] = Chain()
    chain.offer(batch(9, previous=5), "c", 0.0)
    assert runs(chain, 0.0, accepted_ms=999) == []
    assert runs(chain, 0.0, accepted_ms=1000) == [("c", [(9, 9)], False)]


def test_of_another_cut_only_what_is_new_is_delivered() -> None:
    chain: Chain[str] = Chain()
    chain.offer(batch(1, 4), "a", 0.0)
    runs(chain, 0.0)
    chain.offer(batch(3, 5, key=2), "b", 0.0)
    assert runs(chain, 0.0) == [("b", [(5, 7)], True)]
    assert not chain.wants(batch(1, 7, key=3))


def test_a_void_is_passed_over_and_nothing_waits_for_it() -> None:
    chain: Chain[str] = Chain()
    chain.offer(batch(1), "a", 0.0)
    chain.offer(batch(3, previous=2), "c", 0.0)
    assert len(runs(chain, 0.0)) == 1
    chain.offer(batch(2, previous=1, flags=VOID, content_bytes=0, digests=()), "void", 1.0)
    assert runs(chain, 1.0) == [("c", [(3, 3)], False)]
    assert not chain.wants(batch(2, key=5))


def test_a_full_table_forgets_nothing_and_takes_no_more() -> None:
    chain: Chain[str] = Chain()
    for at in range(GAPS_MAX):
        chain.offer(batch(3 + 4 * at, previous=1 + 4 * at), "x", 0.0)
    assert len(runs(chain, REPAIR_S)) == GAPS_MAX
    assert chain.head.gaps == GAPS_MAX * 2 - GAPS_MAX  # the open ones went
    more = 3 + 4 * GAPS_MAX
    chain.offer(batch(more, previous=more - 2), "more", 0.0)
    assert runs(chain, 1000.0) == []
    assert len(chain) == 1
    chain.offer(batch(1), "late", 0.0)
    assert runs(chain, 1000.0) == [("late", [(1, 1)], True), ("more", [(more, more)], False)]


def test_open_numbers_are_delivered_when_they_come_and_forgotten_first() -> None:
    chain: Chain[str] = Chain()
    chain.offer(batch(1), "a", 0.0)
    chain.offer(batch(5, previous=1), "b", 0.0)
    assert len(runs(chain, 0.0)) == 2
    chain.offer(batch(3), "qos 0", 0.0)
    assert runs(chain, 0.0) == [("qos 0", [(3, 3)], True)]
