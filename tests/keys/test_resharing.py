"""Two ways to give a newcomer a share of keys that are older than its place, counted out (docs/explanation/reasons.md).

The live functions split; the interpolation is the one of `test_shares_by_hand`. Nothing here is built into replicas.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from keys.sharetree import Hop, first_split, resplit
from tests.keys.test_shares_by_hand import SECRET, at_zero, known_to

SIZES = [3, 5]


def first_shares(size: int) -> dict[int, bytes]:
    """The shares of the replicas that were there, by place."""
    k = size // 2 + 1
    found = first_split(SECRET, Hop(1, 1, k, size), bytes(range(64, 64 + 32 * (k - 1))))
    return {share.places[-1]: share.value for share in found}


@pytest.mark.parametrize("size", SIZES)
def test_a_share_of_the_same_polynomial_adds_a_newcomer_to_those_who_were_bad_before(size: int) -> None:
    """The newcomer takes the place of one that left. f were bad then, others may be bad now: with it they are k."""
    shares, faults = first_shares(size), (size - 1) // 2
    for place in shares:
        for bad in combinations(set(shares) - {place}, faults):
            assert at_zero({each: shares[each] for each in (*bad, place)}) == SECRET


@pytest.mark.parametrize("size", SIZES)
def test_splits_for_the_next_view_tell_f_before_and_f_after_nothing_and_k_after_everything(size: int) -> None:
    """Each replica splits its share for all places of the next view, as it does for a next region. A label names no
    region twice, so the next view stands as one here.
    """
    k, faults, places = size // 2 + 1, (size - 1) // 2, range(1, size + 1)
    of_before = first_split(SECRET, Hop(1, 1, k, size), bytes(range(64, 64 + 32 * (k - 1))))
    parts: dict[tuple[int, int], bytes] = {}
    for share in of_before:
        for part in resplit(share, bytes(32), Hop(2, 1, k, size), bytes([share.places[-1]]) * 32):
            parts[part.places[-2], part.places[-1]] = part.value
    shares = {share.places[-1]: share.value for share in of_before}
    for honest in combinations(places, k):
        opened = {one: at_zero({after: parts[one, after] for after in honest}) for one in places}
        assert opened == shares
        assert at_zero({one: opened[one] for one in honest}) == SECRET
    for before in combinations(places, faults):
        for after in combinations(places, faults):
            known = known_to([frozenset(before), frozenset(after)], size, whole=False)
            assert () not in known
            assert {way[0] for way in known if len(way) == 1} == set(before), "a share of somebody who was honest"
