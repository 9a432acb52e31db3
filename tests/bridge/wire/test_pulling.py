"""Requests for what is missing: whom to ask when, and their frame."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.wire import pulling
from bridge.wire.pulling import PullRequest, Pulls
from keys.errors import BadFrame
from tests.bridge.helpers import (
    NOW,
)

REGION_1 = ("r1a", "r1b", "r1c")
REGION_2 = ("r2a", "r2b", "r2c")
LONG = bytes(2000)


def test_who_answers_is_asked_first() -> None:
    pulls = Pulls()
    for number in range(6):
        one = pulls.begin((b"p", number), 0, b"p", NOW, 0.0)
        (send,) = pulls.ask(one, ["liar", "honest"], (0,))
        if send.peer == "liar":
            (send,) = pulls.ask(one, ["liar", "honest"], (0,))
        assert send.peer == "honest"
        pulls.came(one, "honest", 0.1)
    assert len(one.asked) == 1, "by now the liar is not asked any more"


def test_where_content_is_usually_late_it_is_waited_for_up_to_a_bound() -> None:
    """A busy host would else answer requests for what is on its way, and become busier."""
    pulls = Pulls()
    assert pulls.begin((b"p", 0), 0, b"p", NOW, 0.02).at == NOW + 0.02
    for _ in range(30):
        pulls.came(None, "r1a", 0.2)
    assert NOW + 0.2 < pulls.begin((b"p", 1), 0, b"p", NOW, 0.02).at < NOW + 0.3
    assert pulls.begin((b"p", 2), 0, b"asker", NOW, 0.0).at == NOW, "somebody else waited already"
    asked = pulls.begin((b"p", 3), 0, b"p", NOW, 0.02)
    pulls.ask(asked, ["r1b"], (0,))
    before = pulls.patience_s
    pulls.came(asked, "r1b", 9.0)
    assert pulls.patience_s == before, "an answer says nothing of what comes by itself"
    for _ in range(100):
        pulls.came(None, "liar", 30.0)
    assert pulls.patience_s == pulling.PATIENCE_MAX_S
    for _ in range(100):
        pulls.came(None, "r1a", 0.001)
    assert pulls.patience_s < 0.01


def test_the_frame_is_canonical() -> None:
    request = PullRequest(b"p" * 16, 5, 7, (0, 3))
    assert PullRequest.decode(request.encode()) == request
    for parts in ((3, 0), (3, 3)):
        with pytest.raises(BadFrame, match="order"):
            PullRequest.decode(PullRequest(b"p" * 16, 5, 7, parts).encode())


@settings(max_examples=150)
@given(st.integers(0, 50), st.binary(min_size=1, max_size=6), st.binary(max_size=60))
def test_whatever_comes_is_refused_or_canonical(offset: int, data: bytes, garbage: bytes) -> None:
    frame = PullRequest(b"p" * 16, 5, 7, (0, 3)).encode()
    for changed in (frame[:offset] + data + frame[offset + len(data) :], frame[:3] + garbage, garbage):
        try:
            assert PullRequest.decode(changed).encode() == changed
        except BadFrame:
            continue
