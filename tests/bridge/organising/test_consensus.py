"""Which link of a cycle goes, and that liars of a region cannot say otherwise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.organising.consensus import believed, cost_vector, link_to_remove

RING = [3, 7, 1, 5]
COSTS = [1.0, 9.0, 1.0, 2.0]  # 3-7, 7-1, 1-5, and the new link 5-3
PROCESSING = [1.0] * 4
COMMON = {broker: dict.fromkeys(set(RING) - {broker}, 10.0) for broker in RING}


def vectors(costs: list[float]) -> list[list[float]]:
    found = [cost_vector(RING, at, COMMON[broker], 0.0, costs, PROCESSING) for at, broker in enumerate(RING)]
    assert all(vector is not None for vector in found)
    return [vector for vector in found if vector is not None]


def test_a_broker_pays_for_the_ways_that_are_left() -> None:
    """Without the link 7-1: 3 reaches 7 directly, 5 by the new link, and 1 through 5."""
    vector = cost_vector(RING, 0, COMMON[3], 0.0, COSTS, PROCESSING)
    assert vector is not None
    assert vector[1] == 10 * 1.0 + 10 * 2.0 + 10 * (2.0 + 1.0 + 1.0)
    assert vector[3] == 10 * 1.0 + 10 * (1.0 + 1.0 + 9.0) + 10 * (1.0 + 1.0 + 9.0 + 1.0 + 1.0)


def test_the_dearest_link_goes_and_a_new_one_that_is_dearer_is_not_made() -> None:
    assert link_to_remove(vectors(COSTS), RING) == 1
    assert link_to_remove(vectors([1.0, 2.0, 1.0, 9.0]), RING) == 3, "the new one: nothing is to be done"


def test_equal_links_are_told_apart_by_their_ends() -> None:
    assert link_to_remove([[1.0, 1.0, 1.0, 1.0]], RING) == 2, "1-5 comes before 1-7, 3-5 and 3-7"


def test_who_does_not_know_all_others_says_nothing() -> None:
    assert cost_vector(RING, 0, {7: 1.0, 1: 1.0}, 0.0, COSTS, PROCESSING) is None


@given(st.integers(1, 4).flatmap(lambda f: st.tuples(
    st.lists(st.floats(0, 1e6), min_size=f + 1, max_size=f + 1), st.lists(st.floats(0, 1e6), min_size=f, max_size=f)
)))  # fmt: skip
def test_f_liars_move_no_median_beyond_what_honest_replicas_say(both: tuple[list[float], list[float]]) -> None:
    honest, liars = both
    value = believed([*honest, *liars], len(liars))
    assert value is not None
    assert min(honest) <= value <= max(honest)


def test_a_region_of_which_too_few_spoke_says_nothing() -> None:
    """With one liar of three: two values are not enough, whatever they are."""
    assert believed([5.0, 9.0], 1) is None
    assert believed([9.0, 5.0, 7.0], 1) == 7.0
    assert believed([9.0, 5.0, 7.0, 6.0], 1) == 6.0, "the lower of two"
    assert believed([3.0], 0) == 3.0
    assert believed([], 0) is None
