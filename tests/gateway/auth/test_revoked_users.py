"""The file of users who are shut out."""

from __future__ import annotations

import pytest

from gateway.auth.revoked_users import RevokedError, RevokedUsers

TEXT = """
# whom the provider has let go
ann
pump-7 2026-11-29T10:00:00Z   # the token was stolen
"""


def test_who_is_shut_out_and_for_how_long() -> None:
    revoked = RevokedUsers.parse(TEXT)
    at = 1_795_946_400.0
    assert not revoked.counts("ann", at * 2)
    assert not revoked.counts("pump-7", at - 1)
    assert not revoked.counts("pump-7", 0.0)
    assert revoked.counts("pump-7", at)
    assert revoked.counts("bob", 0.0)
    assert revoked.more_than(RevokedUsers()) == {"ann", "pump-7"}
    assert RevokedUsers.parse("ann\n").more_than(revoked) == frozenset()
    assert RevokedUsers.parse("pump-7").more_than(revoked) == {"pump-7"}


@pytest.mark.parametrize("line", ["ann yesterday", "ann 2026-11-29T10:00:00", "a b c"])
def test_a_line_that_says_something_else(line: str) -> None:
    with pytest.raises(RevokedError, match="line 2"):
        RevokedUsers.parse(f"\n{line}\n")
