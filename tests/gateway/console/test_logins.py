"""Logins, tokens and failures on a clock of the test's own."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gateway.base import PrivateFileError
from gateway.console.logins import FAILURES_MAX, FAILURES_S, IDLE_S, LOGIN_S, LOGINS_MAX, Logins, TooManyError

DAY_S = 86_400.0


def logins(path: Path | None = None) -> Logins:
    count = itertools.count()
    return Logins(path, lambda size: next(count).to_bytes(size, "big"))


def test_a_login_ends_by_itself_and_when_it_is_not_used() -> None:
    one = logins()
    secret = one.begin("ann", 0.0)
    assert one.user_of_login(secret, IDLE_S - 1) == "ann"
    assert one.user_of_login(secret, 2 * IDLE_S - 2) == "ann"
    assert one.user_of_login(secret, 3 * IDLE_S) is None
    busy = one.begin("ann", 0.0)
    now = 0.0
    while now < LOGIN_S - IDLE_S / 2:
        now += IDLE_S / 2
        assert one.user_of_login(busy, now) == ("ann" if now < LOGIN_S else None)
    assert one.user_of_login(busy, LOGIN_S) is None


def test_a_login_ends_when_it_is_ended_or_its_user_is() -> None:
    one = logins()
    first, second, other = one.begin("ann", 0.0), one.begin("ann", 0.0), one.begin("bob", 0.0)
    one.end(first)
    assert one.user_of_login(first, 1.0) is None
    one.end_all("ann")
    assert one.user_of_login(second, 1.0) is None
    assert one.user_of_login(other, 1.0) == "bob"


def test_logins_are_bounded_and_the_one_used_longest_ago_goes() -> None:
    one = logins()
    secrets = [one.begin("ann", float(at)) for at in range(LOGINS_MAX + 1)]
    assert one.user_of_login(secrets[0], float(LOGINS_MAX)) is None
    assert one.user_of_login(secrets[1], float(LOGINS_MAX)) == "ann"


def test_a_token_outlives_the_process_and_the_file_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    secret, token = logins(path).issue("ann", 7, "script", 0.0)
    assert path.stat().st_mode & 0o077 == 0
    assert secret not in path.read_text()
    again = logins(path)
    assert again.user_of_token(secret, 7 * DAY_S - 1) == "ann"
    assert again.user_of_token(secret, 7 * DAY_S) is None
    assert again.user_of_token(token.digest, 0.0) is None
    assert [one.note for one in again.tokens("ann", 0.0)] == ["script"]
    assert again.tokens("bob", 0.0) == []
    assert not again.revoke(token.id, "bob")
    assert again.revoke(token.id, "ann")
    assert logins(path).user_of_token(secret, 0.0) is None


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for content in ("{", "[1]", '[{"digest": 1}]'):
        path.write_text(content)
        path.chmod(0o600)
        with pytest.raises(PrivateFileError, match="holds no tokens"):
            logins(path)


def test_an_address_that_fails_often_waits_and_no_other() -> None:
    one = logins()
    for at in range(FAILURES_MAX):
        one.check_address("a", float(at))
        one.failed("a", float(at))
    with pytest.raises(TooManyError):
        one.check_address("a", float(FAILURES_MAX))
    one.check_address("b", float(FAILURES_MAX))
    one.check_address("a", FAILURES_S + FAILURES_MAX)
