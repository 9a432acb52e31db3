"""The table of waits says what the code does, and leaves nothing open."""

from __future__ import annotations

import pytest

from gateway.base import Limits
from gateway.broker.exchange import ASK_S
from gateway.broker.waits import Wait
from gateway.sessions.store import RETRY_S
from gateway.sockets.held_actions import HELD_ACTIONS, HELD_BYTES
from tests.gateway.ending import ended, ended_in


@pytest.mark.parametrize("wait", Wait)
def test_every_wait_has_an_end_and_says_what_clients_see(wait: Wait) -> None:
    assert all((wait.where, wait.ends, wait.below_v5, wait.v5, wait.lost))
    assert "|" not in "".join(wait.value), "it is a row of a table"


def test_numbers_and_names_of_bounds_are_those_of_the_code() -> None:
    assert f"{HELD_ACTIONS:,} packets or {HELD_BYTES >> 20} MiB" in Wait.UNREAD.where
    assert f"after {ASK_S:g} s" in Wait.PLUGIN.ends
    assert f"tried each {RETRY_S:g} s" in Wait.SESSIONS_FULL.ends
    for name in ("receive_maximum", "stalled_s", "publish_rate", "hold_s", "shutdown_s"):
        assert hasattr(Limits, name) or name in Limits.model_fields
        assert any(f"`{name}`" in "".join(wait.value) for wait in Wait)


@pytest.mark.long
def test_some_test_ends_every_wait() -> None:
    assert ended() == {wait.name for wait in Wait}, "mark a test with `ends` of tests/gateway/ending.py"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@ends(Wait.PACE, Wait.TURN)\ndef test_one(): ...", ["PACE", "TURN"]),
        ("@other\n@ends(Wait.PACE)\nasync def test_one(): ...", ["PACE"]),
        ("@ends(Wait.PACE)\ndef helper(): ...", []),
        ("# @ends(Wait.PACE)\ndef test_one(): ...", []),
    ],
)
def test_only_marks_of_tests_count(source: str, found: list[str]) -> None:
    assert list(ended_in(source)) == found
