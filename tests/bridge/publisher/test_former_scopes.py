"""What is new waits for what was left on disk before scopes changed, and what was protected stays so."""

from __future__ import annotations

import pytest

from bridge.document import Scope, ScopeSecret
from bridge.publisher import former_scopes
from bridge.publisher.former_scopes import FormerScopes
from keys.envelope import Mode


def secrets(*filters: str, mode: Mode = Mode.COPIES) -> list[ScopeSecret]:
    return [ScopeSecret(Scope(each, mode), each) for each in filters]


def restarted(scopes: FormerScopes, present: list[ScopeSecret]) -> FormerScopes:
    again = FormerScopes(present)
    again.restore([(b"s", b"?"), (b"c", b"damaged"), *(row for keep in scopes.changed_rows() for row in keep.rows)])  # type: ignore[list-item]
    return again


def test_what_is_new_is_behind_what_was_left_before_the_change_and_not_for_ever() -> None:
    scopes = FormerScopes(secrets("open/#"))
    scopes.stored(5, 9)
    assert not scopes.is_behind(5)
    scopes.adopt_scopes(secrets("open/#"))
    assert not scopes.is_behind(5), "nothing changed"
    scopes.adopt_scopes(secrets("open/a/#", "open/b/#"))
    assert scopes.is_behind(9)
    assert not scopes.is_behind(10), "all of before has been read"
    assert not scopes.is_behind(9)


def test_a_change_while_we_were_not_there_counts_from_the_next_number_on() -> None:
    scopes = FormerScopes(secrets("open/#"))
    scopes.stored(5, 9)
    again = restarted(scopes, secrets("open/a/#"))
    assert again.is_behind(5)
    again.stored(70, 70)
    assert again.is_behind(69)
    assert not again.is_behind(70)
    same = FormerScopes(secrets("open/#"))
    same.stored(5, 9)
    assert not restarted(same, secrets("open/#")).is_behind(5)


def test_what_was_not_known_to_be_plain_counts_as_protected() -> None:
    scopes = FormerScopes([*secrets("open/#", mode=Mode.PLAIN), *secrets("plant/#")])
    scopes.stored(1, 1)
    scopes.adopt_scopes(secrets("#", mode=Mode.PLAIN))
    assert [scopes.was_plain(each) for each in ("open/#", "plant/#", "elsewhere/#")] == [True, False, False]
    again = restarted(scopes, secrets("#", mode=Mode.PLAIN))
    assert [again.was_plain(each) for each in ("open/#", "plant/#", "elsewhere/#")] == [True, False, False]
    again.adopt_scopes(secrets("open/#"))  # protected now
    again.adopt_scopes(secrets("#", mode=Mode.PLAIN))
    assert not again.was_plain("open/#")


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_scopes, "FORMER_MAX", 2)
    scopes = FormerScopes(secrets("a", mode=Mode.PLAIN))
    for name in "bcd":
        scopes.adopt_scopes(secrets(name, mode=Mode.PLAIN))
    assert [scopes.was_plain(each) for each in "abc"] == [False, True, True]
