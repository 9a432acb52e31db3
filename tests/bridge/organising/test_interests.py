"""What a filter tells of common interest: never too little, hardly too much, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.organising.interests import FILTER_BITS, InterestFilter, RecentIds

ids = st.lists(st.binary(min_size=24, max_size=24), max_size=60, unique=True)


@given(ids, ids)
def test_what_is_common_is_always_seen(mine: list[bytes], other: list[bytes]) -> None:
    told = InterestFilter()
    told.add(other)
    heard = InterestFilter(array=told.encode())
    assert all(one in heard for one in other)
    assert heard.common(mine) >= len(set(mine) & set(other))


def test_a_full_interval_is_told_within_one_in_a_thousand() -> None:
    """2,500 ids, ten of which we had too, among 5,000 of ours."""
    told = InterestFilter()
    told.add(b"o%d" % number for number in range(2_500))
    ours = [b"o%d" % number for number in range(10)] + [b"m%d" % number for number in range(4_990)]
    assert 10 <= told.common(ours) <= 15
    assert len(told.encode()) == FILTER_BITS // 8


def test_a_filter_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="12500 are needed"):
        InterestFilter(array=bytes(100))


def test_an_interval_has_what_came_in_it_and_the_oldest_are_forgotten() -> None:
    recent = RecentIds(most=3)
    for one in (b"a", b"b"):
        recent.add(one)
    assert recent.next_interval() == [b"a", b"b"]
    for one in (b"c", b"a", b"d"):
        recent.add(one)
    assert recent.next_interval() == [b"c", b"a", b"d"]
    recent.add(b"e")
    assert recent.next_interval() == [b"e"]
