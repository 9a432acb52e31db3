"""A region speaks by the median: liars first, then what is known when all speak, and that silence says nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.document import Organising
from bridge.measuring.region_costs import OLD_INTERVALS, RegionCosts
from bridge.measuring.summaries import InterestSummary, ReplicaSummary
from bridge.organising import InterestFilter
from tests.sim.world import NOW, World, make_world
from tests.support.regions import shared

INTERVAL_S = 60
INTERVAL = int(NOW) // INTERVAL_S


world = shared(make_world, {1: 5, 2: 3}, [(1, 2)], {"g1": 1})


def said(member: str, region: int, us: int, other: int) -> ReplicaSummary:
    return ReplicaSummary(
        member, region, INTERVAL, INTERVAL_S, 0, 4, processing_us=us, links=((other, us),),
        rates=((other, us),),
    )  # fmt: skip


numbers = st.integers(0, 2**32 - 2)


@given(
    honest=st.lists(numbers, min_size=3, max_size=3),
    lies=st.lists(numbers, min_size=2, max_size=2),
    places=st.permutations(range(5)),
)
def test_two_liars_of_five_move_nothing_beyond_what_honest_ones_say(
    world: World, honest: list[int], lies: list[int], places: list[int]
) -> None:
    values = [*honest, *lies]
    members = world.overlay.views[1].members
    spoke = [said(members[place], 1, value, 2) for place, value in zip(places, values, strict=True)]
    spoke += [said(member, 2, 0, 1) for member in world.overlay.views[2].members]
    costs = RegionCosts(world.overlay, spoke, NOW)
    for found in (costs.processing(1), 2 * (costs.link_cost(1, 2) or 0)):
        assert found is not None
        assert min(honest) <= found <= max(honest)
    rate = costs.rate(2, 1)
    assert rate is not None
    assert min(honest) <= rate * INTERVAL_S + 1e-6
    assert rate * INTERVAL_S - 1e-6 <= max(honest)


def test_of_fewer_than_all_that_it_takes_nothing_is_believed(world: World) -> None:
    """Two liars and two honest ones whom they keep the third from: the median would be the liars' to choose."""
    members = world.overlay.views[1].members
    spoke = [said(member, 1, 10, 2) for member in members[:4]]
    assert RegionCosts(world.overlay, spoke, NOW).processing(1) is None
    twice = [*spoke, replace(spoke[0], processing_us=99)]
    assert RegionCosts(world.overlay, twice, NOW).processing(1) is None, "who speaks twice is one"
    whole = RegionCosts(world.overlay, [*spoke, said(members[4], 1, 10, 2)], NOW)
    assert (whole.processing(1), whole.spoke(1)) == (10, 5)


def test_a_link_costs_what_its_dearer_end_says(world: World) -> None:
    spoke = [said(member, region, us, 3 - region) for region, us in ((1, 800), (2, 600))
             for member in world.overlay.views[region].members]  # fmt: skip
    costs = RegionCosts(world.overlay, spoke, NOW)
    assert costs.link_cost(1, 2) == costs.link_cost(2, 1) == 400
    assert costs.link_cost(1, 7) is None


def test_what_is_old_or_of_a_time_to_come_or_of_no_member_says_nothing(world: World) -> None:
    spoke = [said(member, 2, 10, 1) for member in world.overlay.views[2].members]
    ended = INTERVAL * INTERVAL_S
    assert RegionCosts(world.overlay, spoke, ended + OLD_INTERVALS * INTERVAL_S - 1).processing(2) == 10
    assert RegionCosts(world.overlay, spoke, ended + OLD_INTERVALS * INTERVAL_S).processing(2) is None
    assert RegionCosts(world.overlay, spoke, ended - INTERVAL_S - 1).processing(2) is None
    strange = [*spoke[:2], replace(spoke[2], member="stranger")]
    assert RegionCosts(world.overlay, strange, NOW).processing(2) is None


def wants(world: World, region: int, *ids: bytes, interval: int = INTERVAL, but: int = 0) -> list[InterestSummary]:
    """Interests of all replicas of a region but so many."""
    made = InterestFilter()
    made.add_ids(ids)
    members = world.overlay.views[region].members
    return [InterestSummary(name, region, interval, INTERVAL_S, 4, made.encode()) for name in members[but:]]


def test_publications_are_counted_once_whatever_two_liars_of_five_and_one_of_three_say(world: World) -> None:
    both, here, there = (
        [b"b%d" % n for n in range(300)],
        [b"h%d" % n for n in range(100)],
        [b"t%d" % n for n in range(50)],
    )
    lies = [replace(each, filter=b"\xff" * 12_500) for each in wants(world, 1)[:2]]
    lies += [replace(each, filter=bytes(12_500)) for each in wants(world, 2)[:1]]
    told = [*wants(world, 1, *both, *here, but=2), *wants(world, 2, *both, *there, but=1), *lies]
    costs = RegionCosts(world.overlay, told, NOW)
    for regions, count in (({1}, 400), ({2}, 350), ({1, 2}, 450), (set(), 0)):
        assert costs.concerned(frozenset(regions)) == pytest.approx(count, rel=0.01)


def test_only_an_interval_of_which_all_told_counts_and_the_newest_of_these(world: World) -> None:
    former = [*wants(world, 1, b"a", interval=INTERVAL - 1), *wants(world, 2, interval=INTERVAL - 1)]
    assert RegionCosts(world.overlay, former, NOW).concerned(frozenset({1, 2})) == pytest.approx(1, rel=0.01)
    half = [*former, *wants(world, 1, b"a", b"b"), *wants(world, 2, b"c", but=1)]
    assert RegionCosts(world.overlay, half, NOW).concerned(frozenset({1, 2})) == pytest.approx(1, rel=0.01)
    whole = [*half, *wants(world, 2, b"c")]
    assert RegionCosts(world.overlay, whole, NOW).concerned(frozenset({1, 2})) == pytest.approx(3, rel=0.01)
    assert RegionCosts(world.overlay, half[-7:], NOW).concerned(frozenset({1})) is None
    assert not RegionCosts(world.overlay, half[-7:], NOW).are_interests_known


@pytest.mark.parametrize(("percent", "processing", "link"), [(50, 100, 50), (0, 0, 100), (100, 200, 0), (75, 150, 25)])
def test_processing_and_links_count_as_the_owner_says(percent: int, processing: float, link: float) -> None:
    made = make_world({1: 3, 2: 3}, [(1, 2)], {"g1": 1})
    made.overlay = made.with_policy(organising=Organising(processing_percent=percent))
    spoke = [said(member, region, 100, 3 - region) for region, view in made.overlay.views.items()
             for member in view.members]  # fmt: skip
    costs = RegionCosts(made.overlay, spoke, NOW)
    assert (costs.processing(1), costs.link_cost(1, 2)) == (processing, link)
