"""What a replica forwarded: nothing twice, nothing lost, and two contents for one number are their member's fault."""

from __future__ import annotations

from bridge.replica import Forwarded, Found
from bridge.replica.forwarded import OPEN_S
from keys.batchheader import VOID
from tests.bridge.reader.test_chains import batch

KEEP_S = 3610.0


def test_each_sealing_goes_once() -> None:
    seen = Forwarded(KEEP_S)
    one = batch(1, 5)
    assert seen.find(one, b"frame") is Found.NEW
    seen.add(one, b"frame", 0.0)
    assert seen.find(one, b"frame") is Found.REPEATED
    assert seen.find(one, b"other") is Found.COVERED
    assert seen.is_overlap(one)
    assert seen.find(batch(5, 5), b"overlap") is Found.COVERED
    assert seen.find(batch(6, 5), b"next") is Found.NEW
    assert seen.find(batch(1, 5, key=2), b"sealed anew") is Found.NEW


def test_a_void_of_numbers_that_went_is_new() -> None:
    seen = Forwarded(KEEP_S)
    seen.add(batch(1, 5), b"frame", 0.0)
    void = batch(1, 5, flags=VOID, content_bytes=0, digests=())
    assert seen.find(void, b"void") is Found.NEW
    seen.add(void, b"void", 0.0)
    assert seen.find(void, b"void") is Found.REPEATED


def test_an_old_key_that_was_silent_repeats_nothing_and_what_it_never_sent_is_new() -> None:
    seen = Forwarded(KEEP_S)
    seen.add(batch(1, 5), b"old", 0.0)
    seen.add(batch(100, key=2), b"new", OPEN_S + 1)
    assert seen.find(batch(1, 5), b"old") is Found.COVERED  # to be verified again, at the link's cost
    assert not seen.is_overlap(batch(1, 5))
    assert seen.find(batch(6, 5), b"never came") is Found.NEW


def test_what_no_batch_can_be_as_old_as_is_forgotten() -> None:
    seen = Forwarded(KEEP_S)
    for key in range(1, 50):
        seen.add(batch(key, key=key), b"x", float(key))
    seen.add(batch(99, key=99), b"x", 2 * KEEP_S)
    for at in range(100):
        seen.add(batch(1000 + at, key=99), b"x", 2 * KEEP_S + at)
    assert len(seen) == 1


def test_who_is_no_member_is_forgotten() -> None:
    seen = Forwarded(KEEP_S)
    seen.add(batch(1), b"x", 0.0)
    seen.keep(())
    assert len(seen) == 0
