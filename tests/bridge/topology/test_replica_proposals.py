"""The next step of placement: where it fails, in one step at a time, and with what is expected of it."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.topology.placement import Path
from bridge.topology.replica_proposals import DOWN_MIN, ReplicaFigures, carried, next_step, quorum_up

NORTH, SOUTH = 1, 2
PATHS = [Path((NORTH, SOUTH))]


def regions(north: int, south: int = 3) -> dict[int, list[str]]:
    return {NORTH: [f"n{at}" for at in range(north)], SOUTH: [f"s{at}" for at in range(south)]}


def bad(**down: float) -> ReplicaFigures:
    return ReplicaFigures(dict.fromkeys(down, 10.0), down)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_a_quorum_is_up_as_often_as_counting_every_case_says(down: list[float]):
    counted = 0.0
    for case in product((True, False), repeat=len(down)):
        chance = 1.0
        for up, part in zip(case, down, strict=True):
            chance *= 1 - part if up else part
        counted += chance if sum(case) >= len(down) // 2 + 1 else 0.0
    assert quorum_up(down) == pytest.approx(counted)


def test_a_path_carries_while_all_its_regions_are_up():
    assert carried([Path((1, 2), 3.0), Path((2,), 1.0)], {1: 0.5, 2: 0.8}) == pytest.approx((3 * 0.4 + 0.8) / 4)
    assert carried([], {}) == 1.0


def test_where_nothing_failed_nothing_is_proposed():
    assert next_step(regions(3), PATHS, bad(), 4) is None


def test_one_spare_takes_the_place_of_the_one_that_fails():
    step = next_step(regions(3), PATHS, bad(n1=0.3), 1)
    assert step is not None
    assert (step.region, step.is_attach, step.steps) == (NORTH, True, 2)
    assert step.after < step.before < step.at_end, "four with k = 3 bear one failure, as three do"
    assert step.overall_before < step.overall_at_end
    after = next_step(regions(4), PATHS, bad(n1=0.3), 0)
    assert after is not None
    assert (after.member, after.steps) == ("n1", 1)
    assert after.after == after.at_end == pytest.approx(step.at_end)
    assert next_step({**regions(3), NORTH: ["n0", "n2", "n3"]}, PATHS, bad(), 0) is None


def test_two_spares_make_five_where_all_fail():
    figures = bad(n0=0.1, n1=0.1, n2=0.1)
    step = next_step(regions(3), PATHS, figures, 2)
    assert step is not None
    assert (step.region, step.is_attach, step.steps) == (NORTH, True, 2)
    assert step.at_end > next_step(regions(3), PATHS, figures, 1).at_end  # type: ignore[union-attr]
    following = next_step(regions(4), PATHS, figures, 1)
    assert following is not None
    assert following.is_attach


def test_without_a_spare_nothing_is_proposed_but_to_end_what_was_begun():
    assert next_step(regions(3), PATHS, bad(n1=0.3), 0) is None
    assert next_step({NORTH: ["a"], SOUTH: ["b", "c"]}, PATHS, bad(b=0.3), 0) is None, "two of a trusted region stay"


def test_the_weightier_path_of_two_that_fail_alike_is_served_first():
    three = {1: ["a0", "a1", "a2"], 2: ["b0", "b1", "b2"], 3: ["c0", "c1", "c2"]}
    figures = bad(a0=0.2, c0=0.2)
    for weights, first in (((1.0, 5.0), 3), ((5.0, 1.0), 1)):
        step = next_step(three, [Path((1, 2), weights[0]), Path((3, 2), weights[1])], figures, 1)
        assert step is not None
        assert step.region == first


def test_what_may_not_be_signed_is_not_proposed():
    figures = bad(n1=0.3, s1=0.1)
    step = next_step(regions(3), PATHS, figures, 2, lambda sizes: sizes[NORTH] <= 3)
    assert step is not None
    assert step.region == SOUTH
    assert next_step(regions(3), PATHS, figures, 2, lambda sizes: False) is None


def test_a_gain_that_is_not_worth_a_signature_is_not_proposed():
    everywhere = {f"n{at}": 1.0 for at in range(3)}
    figures = ReplicaFigures(everywhere, dict.fromkeys(everywhere, 0.0))
    assert figures.down_of("n0") == DOWN_MIN
    assert next_step(regions(3), PATHS, figures, 1) is None
