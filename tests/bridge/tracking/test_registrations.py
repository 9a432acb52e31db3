"""Registrations that come faster than they are taken up: who waits, for how long, and what a flood can do."""

from __future__ import annotations

import pytest

from bridge.tracking.registrations import (
    AT_ONCE,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    RegistrationQueue,
)
from keys.tracesession import Registration


def asks(number: int, advertisement: bytes = b"") -> bytes:
    """A registration as it comes; whether it holds is nobody's question here."""
    return Registration(advertisement, bytes(16), number, bytes(64)).encode()


def busy() -> RegistrationQueue:
    """A turn of which nothing is left."""
    admission = RegistrationQueue()
    assert all(admission.arrives(f"early-{place}", asks(place)) for place in range(AT_ONCE))
    return admission


def test_a_few_are_taken_up_at_once_and_the_others_in_order_turn_by_turn() -> None:
    admission = busy()
    assert not any(admission.arrives(f"pump-{place}", asks(place)) for place in range(10))
    taken = []
    while len(admission):
        turn = admission.turn()
        assert 0 < len(turn) <= AT_ONCE
        taken += turn
    assert taken == [(f"pump-{place}", asks(place)) for place in range(10)]


def test_who_comes_while_others_wait_does_not_overtake_them() -> None:
    admission = busy()
    for place in range(AT_ONCE + 1):
        admission.arrives(f"pump-{place}", asks(0))
    admission.turn()
    assert not admission.arrives("late", asks(0))
    assert [client for client, _ in admission.turn()] == [f"pump-{AT_ONCE}", "late"]
    assert admission.arrives("later", asks(0)), "something of this turn is left, and nobody waits"


def test_a_client_that_asks_again_keeps_its_place_and_has_one_only() -> None:
    admission = busy()
    admission.arrives("flooder", asks(0))
    admission.arrives("pump", asks(0))
    for number in range(1_000):
        assert not admission.arrives("flooder", asks(number))
    assert admission.turn() == [("flooder", asks(999)), ("pump", asks(0))]


def test_who_is_gone_is_not_registered() -> None:
    admission = busy()
    admission.arrives("pump-1", asks(0))
    admission.arrives("pump-2", asks(0))
    admission.gone("pump-1")
    admission.gone("nobody")
    assert admission.turn() == [("pump-2", asks(0))]


def test_what_is_no_registration_takes_nobodys_place() -> None:
    admission = busy()
    assert admission.arrives("noise", b"noise")
    assert admission.arrives("noise", asks(0) + b"more")
    assert len(admission) == 0


@pytest.mark.long
def test_what_would_not_fit_is_not_kept_and_not_lost() -> None:
    admission = busy()
    for place in range(WAITING_MAX):
        assert not admission.arrives(f"pump-{place}", asks(0))
    assert admission.arrives("one more", asks(0))
    assert not admission.arrives("pump-0", asks(1))
    assert admission.arrives("pump-1", asks(0, bytes(WAITING_BYTES_MAX)))
    assert len(admission) == WAITING_MAX


def test_what_just_fits_waits_and_one_byte_more_does_not() -> None:
    admission, around = busy(), len(asks(0))
    assert not admission.arrives("fits", asks(0, bytes(WAITING_BYTES_MAX - around)))
    assert admission.arrives("long", asks(0, bytes(WAITING_BYTES_MAX - around + 1)))
    assert len(admission) == 1


def test_a_turn_takes_up_so_many_whether_they_waited_or_came_just_now() -> None:
    admission = busy()
    admission.arrives("waits", asks(0))
    assert len(admission.turn()) == 1
    assert [admission.arrives(f"pump-{place}", asks(0)) for place in range(AT_ONCE)] == [True] * (AT_ONCE - 1) + [False]
