"""Logins on a clock of the test's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from gateway.console.logins import IDLE_S, LOGIN_S, LOGINS_MAX, ConsoleUser, Logins

STANDING: dict[str, str] = {}


def logins() -> Logins:
    count = itertools.count()
    return Logins(lambda size: next(count).to_bytes(size, "big"), STANDING.get)


@pytest.fixture(autouse=True)
def standing() -> Iterator[None]:
    STANDING.update(ann="one", bob="one")
    yield
    STANDING.clear()


def test_a_login_counts_while_its_user_stands_as_when_it_began() -> None:
    one = logins()
    ann, bob = one.begin_login(ConsoleUser("ann"), 0.0), one.begin_login(ConsoleUser("bob"), 0.0)
    STANDING["ann"] = "another password"
    del STANDING["bob"]
    for secret in (ann, bob):
        assert not one.is_on(secret, 1.0)
        assert one.user_of_login(secret, 1.0) is None


def test_a_login_ends_by_itself_and_when_it_is_not_used() -> None:
    one = logins()
    secret = one.begin_login(ConsoleUser("ann"), 0.0)
    assert one.user_of_login(secret, IDLE_S - 1) == ConsoleUser("ann")
    assert one.user_of_login(secret, 2 * IDLE_S - 2) == ConsoleUser("ann")
    assert one.user_of_login(secret, 3 * IDLE_S) is None
    busy = one.begin_login(ConsoleUser("ann"), 0.0)
    assert one.is_on(busy, LOGIN_S - 1)
    assert not one.is_on(busy, LOGIN_S)
    now = 0.0
    while now < LOGIN_S - IDLE_S / 2:
        now += IDLE_S / 2
        assert one.user_of_login(busy, now) == (ConsoleUser("ann") if now < LOGIN_S else None)
    assert one.user_of_login(busy, LOGIN_S) is None


def test_a_login_ends_when_it_is_ended_or_its_user_is() -> None:
    one = logins()
    first, second, other = (one.begin_login(ConsoleUser(name), 0.0) for name in ("ann", "ann", "bob"))
    one.end_login(first)
    assert one.user_of_login(first, 1.0) is None
    one.end_all({"ann"})
    assert one.user_of_login(second, 1.0) is None
    assert one.user_of_login(other, 1.0) == ConsoleUser("bob")


def test_logins_are_bounded_and_the_one_used_longest_ago_goes() -> None:
    one = logins()
    secrets = [one.begin_login(ConsoleUser("ann"), float(at)) for at in range(LOGINS_MAX + 1)]
    assert one.user_of_login(secrets[0], float(LOGINS_MAX)) is None
    assert one.user_of_login(secrets[1], float(LOGINS_MAX)) == ConsoleUser("ann")


def test_a_login_by_a_token_ends_with_it_and_needs_no_user_here() -> None:
    one = logins()
    carl = ConsoleUser("carl", ("plant",), ends=100.0)
    secret = one.begin_login(carl, 0.0)
    assert one.user_of_login(secret, 99.0) == carl
    assert one.user_of_login(secret, 100.0) is None
    other = one.begin_login(carl, 0.0)
    one.end_all({"carl"})
    assert not one.is_on(other, 1.0)
    late = one.begin_login(ConsoleUser("carl", (), ends=10 * LOGIN_S), 0.0)
    assert not one.is_on(late, LOGIN_S)


@pytest.mark.attack(158)
def test_a_user_who_logs_in_without_end_ends_no_login_of_others() -> None:
    one = logins()
    bob = one.begin_login(ConsoleUser("bob"), 0.0)
    ann = [one.begin_login(ConsoleUser("ann"), float(at)) for at in range(LOGINS_MAX + 10)]
    assert one.user_of_login(bob, float(LOGINS_MAX)) == ConsoleUser("bob")
    assert one.user_of_login(ann[-1], float(LOGINS_MAX)) == ConsoleUser("ann")
    assert one.user_of_login(ann[10], float(LOGINS_MAX)) is None
