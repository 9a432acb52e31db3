"""The simulator's outbox: what a crash leaves, what a page brings."""

from __future__ import annotations

from bridge.contract.machine import OutboxEntry, OutboxPage, Publication
from papers.sim.outbox import PAGE_ROWS, SimulatedOutbox


def entry(sequence: int, qos: int = 1) -> OutboxEntry:
    return sequence, sequence - 1, Publication("plant/t", b"%d" % sequence, qos, time_ms=sequence)


def test_what_is_in_hand_is_not_read_again_until_a_crash() -> None:
    outbox = SimulatedOutbox()
    outbox.put_entries([entry(1), entry(2), entry(3, qos=0)])
    assert outbox.page(0) == OutboxPage((), None)
    assert not outbox.is_left_on_disk(1)
    outbox.crashed()
    assert outbox.is_left_on_disk(1)
    assert not outbox.is_left_on_disk(3), "QoS 0 was never there"
    assert outbox.page(0) == OutboxPage((entry(1), entry(2)), None)
    assert outbox.page(0) == OutboxPage((), None)


def test_what_is_forgotten_is_gone_and_what_is_left_comes_again() -> None:
    outbox = SimulatedOutbox()
    outbox.put_entries([entry(1), entry(2)])
    outbox.forget_entries([1, 99])
    outbox.leave_on_disk([2])
    assert outbox.first_from(0) == (2, 2)
    assert outbox.first_from(3) is None
    assert outbox.last_of_chain("plant/t") == 2
    assert outbox.page(0).entries == (entry(2),)


def test_pages_say_where_to_read_on() -> None:
    outbox = SimulatedOutbox()
    outbox.put_entries(entry(n) for n in range(1, PAGE_ROWS + 6))
    outbox.crashed()
    page = outbox.page(0)
    assert (len(page.entries), page.following) == (PAGE_ROWS, PAGE_ROWS + 1)
    assert len(outbox.page(page.following).entries) == 5


def test_rows_say_whether_their_scope_was_plain() -> None:
    outbox = SimulatedOutbox(is_plain=lambda chain: chain == "open")
    outbox.put_entries([(1, 0, Publication("open", b"x", 1)), (2, 0, Publication("plant", b"x", 1))])
    outbox.crashed()
    assert [publication.in_clear for _, _, publication in outbox.page(0).entries] == [True, False]
