"""Keys that found no room at a reader: how many are told again, and when."""

from __future__ import annotations

from math import inf

from bridge.replica.retained import DataKeyName
from bridge.replica.untold_keys import GOES_ON_S, RETELL_S, UntoldKeys

KEYS = [(b"publisher", "plant/#", bytes([number])) for number in range(7)]


def with_lost(*names: DataKeyName) -> UntoldKeys:
    untold = UntoldKeys()
    for name in names:
        untold.note_lost_key("reader", name, 0.0)
    return untold


def told(untold: UntoldKeys, now: float) -> list[DataKeyName]:
    return [name for peer in untold.due_peers(now) for name in untold.next_of(peer, list(untold.keys_for(peer)), now)]


def test_what_is_taken_lets_twice_as_many_follow():
    untold, now, rounds = with_lost(*KEYS), RETELL_S, []
    while untold.next_deadline < inf:
        assert untold.next_deadline <= now
        rounds.append(told(untold, now))
        now += GOES_ON_S
    assert rounds == [KEYS[:1], KEYS[1:3], KEYS[3:]]


def test_a_loss_begins_anew_with_one():
    untold = with_lost(*KEYS)
    (first,) = told(untold, RETELL_S)
    untold.note_lost_key("reader", first, RETELL_S)
    assert untold.next_deadline == 2 * RETELL_S
    assert len(told(untold, 2 * RETELL_S)) == 1


def test_losses_without_end_put_off_nothing():
    untold = with_lost(*KEYS)
    for at in range(5):
        untold.note_lost_key("reader", KEYS[at], float(at))
    assert untold.next_deadline == RETELL_S


def test_what_is_not_lacked_any_more_is_forgotten():
    untold = with_lost(*KEYS)
    assert untold.next_of("reader", [], RETELL_S) == []
    assert untold.next_deadline == inf
    assert untold.due_peers(inf) == []


def test_a_link_that_is_down_is_waited_for():
    untold = with_lost(*KEYS)
    untold.link_down("reader")
    assert untold.due_peers(1000.0) == []
    untold.link_up("reader", 1000.0)
    assert untold.next_deadline == 1000.0 + RETELL_S
    assert told(untold, 1000.0 + RETELL_S) == KEYS[:1]


def test_who_is_no_member_is_forgotten():
    untold = with_lost(*KEYS)
    untold.note_lost_key("other", KEYS[0], 1.0)
    untold.forget_all_but({"other"})
    assert untold.due_peers(100.0) == ["other"]
