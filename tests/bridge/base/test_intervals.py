"""Intervals are a set of numbers, whatever is put in and taken out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base import Intervals

RUN = st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 12))


@given(st.lists(RUN, max_size=30), st.integers(0, 50), st.integers(0, 20))
def test_intervals_hold_what_a_set_would(runs: list[tuple[bool, int, int]], low: int, size: int) -> None:
    found, numbers = Intervals(), set[int]()
    for adds, start, length in runs:
        run = range(start, start + length + 1)
        (found.add if adds else found.remove)(run[0], run[-1])
        numbers = numbers | set(run) if adds else numbers - set(run)
    pairs = [*found]
    assert {n for a, b in pairs for n in range(a, b + 1)} == numbers
    assert all(b + 1 < c for (_, b), (c, _) in pairwise(pairs))
    asked = range(low, low + size + 1)
    assert {n for a, b in found.within(low, asked[-1]) for n in range(a, b + 1)} == numbers & set(asked)
    assert {n for a, b in found.without(low, asked[-1]) for n in range(a, b + 1)} == set(asked) - numbers
    assert all((n in found) is (n in numbers) for n in asked)
    assert [*Intervals.decode(found.encode())] == pairs


@pytest.mark.parametrize("data", [b"x", bytes(15), b"\0" * 7 + b"\5" + b"\0" * 7 + b"\4", bytes(32)])
def test_bytes_that_are_no_intervals_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="intervals"):
        Intervals.decode(data)
