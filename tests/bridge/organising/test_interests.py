"""What a filter tells of common interest: never too little, hardly too much, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.organising.interests import FILTER_BITS, InterestFilter, agreed, estimated

ids = st.lists(st.binary(min_size=24, max_size=24), max_size=60, unique=True)


def told(*each: bytes) -> bytes:
    made = InterestFilter()
    made.add_ids(each)
    return made.encode()


def union(*filters: bytes) -> int:
    found = 0
    for each in filters:
        found |= int.from_bytes(each)
    return found


@given(ids, ids)
def test_a_union_counts_each_publication_once(mine: list[bytes], other: list[bytes]) -> None:
    assert estimated(union(told(*mine), told(*other))) == pytest.approx(len({*mine, *other}), abs=1, rel=0.02)


@pytest.mark.long
@pytest.mark.parametrize("count", [1_000, 8_192, 50_000])
def test_a_full_union_is_known_within_a_hundredth(count: int) -> None:
    whole = told(*(b"o%d" % number for number in range(count)))
    assert estimated(union(whole)) == pytest.approx(count, rel=0.01)
    assert len(whole) == FILTER_BITS // 8


@pytest.mark.long
def test_a_union_that_is_too_full_says_nothing() -> None:
    assert estimated((1 << FILTER_BITS) - 1) is None
    assert estimated(union(told(*(b"o%d" % number for number in range(70_000))))) is None


@given(
    honest=st.lists(st.lists(st.binary(min_size=8, max_size=8), max_size=20), min_size=3, max_size=3),
    lies=st.lists(st.sampled_from([bytes(FILTER_BITS // 8), b"\xff" * (FILTER_BITS // 8)]), min_size=2, max_size=2),
    places=st.permutations(range(5)),
)
def test_two_liars_of_five_set_no_bit_and_clear_none(
    honest: list[list[bytes]], lies: list[bytes], places: list[int]
) -> None:
    true = [told(*each) for each in honest]
    both = [*true, *lies]
    found = agreed([both[place] for place in places])
    everywhere = int.from_bytes(true[0]) & int.from_bytes(true[1]) & int.from_bytes(true[2])
    assert found & everywhere == everywhere
    assert found | union(*true) == union(*true)


def test_of_two_or_four_filters_the_lower_median_counts() -> None:
    one, other = told(b"a", b"b"), told(b"b", b"c")
    assert agreed([one, other]) == union(one) & union(other)
    assert agreed([one]) == union(one)
    assert agreed([one, one, other, other]) == union(one) & union(other)


def test_a_filter_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="12500 are needed"):
        InterestFilter(array=bytes(100))
