"""What is answered to a wire that was refused."""

from __future__ import annotations

import pytest

from bridge.contract import Blame, Count, Refuse
from bridge.contract.refusing import Reason, refusal


@pytest.mark.parametrize(
    ("effects", "reason"),
    [
        ([Count("refused", 1, "NotFresh")], Reason.TIME),
        ([Count("complaints"), Count("refused", 1, "Superseded")], Reason.GENERATION),
        ([Count("refused", 1, "WrongEpochKey")], Reason.VIEW),
        ([Count("refused", 1, "NotAuthorised"), Blame("a", False, "")], Reason.RIGHT),
        ([Count("refused", 1, "stranger")], Reason.RIGHT),
        ([Count("refused", 1, "TooOften")], Reason.BUDGET),
        ([Count("publisher_throttled")], Reason.BUDGET),
        ([Count("link_throttled", 1, "a")], Reason.BUDGET),
        ([Count("refused", 1, "BadSignature")], Reason.FORM),
        ([Count("refused", 1, "content")], Reason.FORM),
    ],
)
def test_each_refusal_has_its_reason(effects: list[Count | Blame], reason: Reason) -> None:
    assert refusal(effects) == [Refuse(reason)]


def test_what_was_taken_is_not_refused() -> None:
    assert refusal([Count("forwarded"), Count("duplicates_dropped"), Blame("a", False, "")]) == []
