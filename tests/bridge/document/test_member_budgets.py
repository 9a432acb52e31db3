"""Budgets of members in the policy: one spelling, and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.document.member_budgets import BUDGETS_MOST, MemberBudgets
from keys.errors import BadFrame
from keys.frames import Reader

BUDGETS = st.builds(MemberBudgets, *(st.integers(1, most) for most in BUDGETS_MOST))


@given(BUDGETS)
def test_what_is_written_is_read(budgets: MemberBudgets) -> None:
    frame = Reader(budgets.encode())
    assert MemberBudgets.read(frame) == budgets
    frame.expect_end()


@pytest.mark.parametrize(
    "values", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (BUDGETS_MOST[0] + 1, 1, 1), (1, 1, BUDGETS_MOST[2] + 1)]
)
def test_budgets_that_are_none_are_refused(values: tuple[int, int, int]) -> None:
    with pytest.raises(BadFrame, match="budgets of members"):
        MemberBudgets.read(Reader(MemberBudgets(*values).encode()))
