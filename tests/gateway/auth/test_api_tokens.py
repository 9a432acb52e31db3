"""Tokens of programs: kept as digests, bounded, and changed by two processes one after the other."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import pytest

from gateway.auth.api_tokens import NOTE_MAX, TOKENS_MAX, ApiTokenError, ApiTokens
from gateway.base import PrivateFileError

DAY_S = 86_400.0
DRAWN = itertools.count()


def tokens(path: Path | None = None, standing: dict[str, str] | None = None) -> ApiTokens:
    """`standing`: of users who are there; None: nobody can tell."""
    known = (lambda user: "") if standing is None else standing.get
    return ApiTokens(path, lambda size: next(DRAWN).to_bytes(size, "big"), known)


def test_a_token_counts_while_its_user_stands_as_when_it_was_issued(tmp_path: Path) -> None:
    path, standing = tmp_path / "tokens", {"ann": "one", "bob": "one"}
    running = tokens(path, standing)
    (secret, _), (other, _) = (running.issue(user, 1, 90, "", 0.0) for user in ("ann", "bob"))
    standing["ann"] = "two"
    assert running.user_of(secret, 0.0) is None
    assert tokens(path, standing).user_of(secret, 0.0) is None, "nor after a restart"
    assert [one.user for one in running.tokens_of(None, 0.0)] == ["bob"]
    del standing["bob"]
    assert tokens(path, standing).user_of(other, 0.0) is None
    with pytest.raises(ApiTokenError, match="no user bob"):
        running.issue("bob", 1, 90, "", 0.0)
    running.issue("ann", 1, 90, "", 0.0)
    assert [one["mark"] for one in json.loads(path.read_text())] == ["two"], "ended ones leave the file"


def test_a_token_outlives_the_process_and_the_file_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    secret, token = tokens(path).issue("ann", 7, 90, "script", 0.0)
    assert path.stat().st_mode & 0o077 == 0
    assert secret not in path.read_text()
    again = tokens(path)
    assert again.user_of(secret, 7 * DAY_S - 1) == "ann"
    assert again.user_of(secret, 7 * DAY_S) is None
    assert again.user_of(token.digest, 0.0) is None
    assert [one.note for one in again.tokens_of("ann", 0.0)] == ["script"]
    assert again.tokens_of("bob", 0.0) == []
    assert not again.revoke(token.id, "bob")
    assert not again.revoke("\ud800é", None)
    assert again.revoke(token.id, "ann")
    assert tokens(path).user_of(secret, 0.0) is None


def test_two_processes_see_each_others_tokens_and_lose_none(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    broker, command = tokens(path), tokens(path)
    first, one = broker.issue("ann", 1, 90, "", 0.0)
    second, _ = command.issue("bob", 1, 90, "", 0.0)
    assert [broker.user_of(secret, 0.0) for secret in (first, second)] == ["ann", "bob"]
    assert command.revoke(one.id, None)
    assert broker.user_of(first, 0.0) is None
    broker.revoke_all({"bob"})
    assert command.user_of(second, 0.0) is None
    path.unlink()
    assert broker.tokens_of(None, 0.0) == []


def test_a_file_damaged_meanwhile_keeps_what_was_before_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    one = tokens(path)
    secret, _ = one.issue("ann", 1, 90, "", 0.0)
    path.write_text("{")
    with caplog.at_level(logging.ERROR):
        assert [one.user_of(secret, 0.0), one.user_of(secret, 0.0)] == ["ann", "ann"]
    assert len(caplog.records) == 1
    with pytest.raises(PrivateFileError, match="holds no tokens"):
        one.issue("ann", 1, 90, "", 0.0)
    assert path.read_text() == "{", "it may be of a newer release: nothing is written over it"


@pytest.mark.parametrize(
    "content", ["{", "[1]", '[{"digest": 1}]', '[{"digest": 1, "user": "a", "ends": 1, "note": ""}]']
)
def test_a_damaged_file_is_said(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(PrivateFileError, match="holds no tokens"):
        tokens(path)


@pytest.mark.parametrize(
    ("user", "days", "note"),
    [
        ("", 1, ""),
        ("a\nb", 1, ""),
        ("ann", 0, ""),
        ("ann", 91, ""),
        ("ann", 1, "x" * (NOTE_MAX + 1)),
        ("ann", 1, "a\nb"),
    ],
)
def test_what_is_no_token_is_refused(tmp_path: Path, user: str, days: int, note: str) -> None:
    with pytest.raises(ApiTokenError):
        tokens(tmp_path / "tokens").issue(user, days, 90, note, 0.0)
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_bounded_and_those_that_ended_make_room(tmp_path: Path) -> None:
    one = tokens()
    for _ in range(TOKENS_MAX):
        one.issue("ann", 1, 90, "", 0.0)
    with pytest.raises(ApiTokenError, match="revoke"):
        one.issue("ann", 1, 90, "", DAY_S - 1)
    one.issue("ann", 1, 90, "", DAY_S)
    assert len(one.tokens_of(None, DAY_S)) == 1


def test_a_refused_change_leaves_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    one = tokens(path)
    secret, token = one.issue("ann", 1, 90, "", 0.0)
    path.chmod(0o644)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        one.revoke(token.id, None)
    path.chmod(0o600)
    assert one.user_of(secret, 0.0) == "ann"
    assert len(json.loads(path.read_text())) == 1


@pytest.mark.attack(158)
def test_a_user_with_all_tokens_takes_none_from_others(tmp_path: Path) -> None:
    """Attack: a user of the console issues tokens until nobody else gets one."""
    one = tokens()
    first, *rest = [one.issue("ann", 1, 90, "", 0.0)[0] for _ in range(TOKENS_MAX)]
    bob, _ = one.issue("bob", 1, 90, "", 0.0)
    assert one.user_of(bob, 0.0) == "bob"
    assert one.user_of(first, 0.0) is None, "who has most loses its oldest"
    assert all(one.user_of(secret, 0.0) == "ann" for secret in rest)
    with pytest.raises(ApiTokenError, match="revoke some"):
        one.issue("ann", 1, 90, "", 0.0)
