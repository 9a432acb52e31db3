"""Where a replica stands: who is next on a way, who may send what, and what of it follows other views."""

from __future__ import annotations

import pytest

from bridge.topology.routes import Routes
from keys.errors import NotAuthorised
from keys.sharetree import Hop, Place
from tests.sim.world import make_world

WORLD = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"west": 1, "middle": 2, "east": 3})
OVERLAY = WORLD.overlay
ONE, TWO, THREE = (OVERLAY.views[region].members for region in (1, 2, 3))


@pytest.fixture
def routes() -> Routes:
    """A replica of the region in the middle."""
    return Routes(OVERLAY, TWO[0])


def test_the_next_region_on_the_way(routes: Routes) -> None:
    assert [routes.towards(region, 0) for region in (1, 2, 3)] == [1, None, 3]
    far = Routes(OVERLAY, ONE[0])
    assert [far.towards(region, 0) for region in (1, 2, 3)] == [None, 2, 2]


def test_who_of_a_region_can_hear_us(routes: Routes) -> None:
    routes.up = {ONE[2], ONE[0], "middle"}
    assert routes.replicas_up(1) == routes.members_up(1) == [ONE[0], ONE[2]]
    assert routes.replicas_up(3) == []
    assert routes.is_replica(ONE[0])
    assert not routes.is_replica("middle")


@pytest.mark.parametrize(("publisher", "senders"), [("west", ONE), ("east", THREE), ("middle", ("middle",))])
def test_a_publication_comes_from_the_region_before_ours_or_from_its_publisher(
    routes: Routes, publisher: str, senders: tuple[str, ...]
) -> None:
    for sender in senders:
        routes.topology.check_sender(sender, OVERLAY.certificate(publisher), routes.region, 0)
    for stranger in {*ONE, *TWO[1:], *THREE, "west", "middle", "east"} - set(senders):
        with pytest.raises(NotAuthorised, match=f"{stranger} is not on the way from {publisher}"):
            routes.topology.check_sender(stranger, OVERLAY.certificate(publisher), routes.region, 0)


def test_a_place_is_that_of_the_view_that_a_key_was_split_for(routes: Routes) -> None:
    hops = [OVERLAY.views[1].hop, OVERLAY.views[2].hop]
    assert routes.topology.place_in(hops, TWO[2]) == Place(2, 1, 3)
    assert routes.topology.place_in(hops, THREE[0]) is None, "the key does not go there"
    assert routes.topology.place_in(hops, "middle") is None, "no replica"
    assert routes.topology.place_in([Hop(2, 99, 2, 3)], TWO[0]) is None, "a view that is not open"


@pytest.mark.parametrize(
    ("publisher", "member", "region", "between"),
    [
        ("west", "east", 3, True),
        ("west", "middle", 2, True),
        ("west", "west", 1, False),
        ("middle", "middle", 2, False),
        ("middle", "east", 3, True),
        ("east", "east", 3, False),
    ],
)
def test_whether_something_comes_through_here(
    routes: Routes, publisher: str, member: str, region: int, between: bool
) -> None:
    assert routes.lie_between(OVERLAY.certificate(publisher), member, region, 0) is between


def test_who_is_no_member_any_more_cannot_hear_us(routes: Routes) -> None:
    routes.up = {ONE[0], "west", "gone"}
    routes.adopt_overlay(OVERLAY)
    assert routes.up == {ONE[0], "west"}


def test_what_passes_other_regions_only_does_not_come_through_here() -> None:
    edge = Routes(OVERLAY, THREE[0])
    assert not edge.lie_between(OVERLAY.certificate("west"), "middle", 2, 0)
    assert not edge.lie_between(OVERLAY.certificate("middle"), "west", 1, 0)


def test_another_version_counts_from_its_adoption(routes: Routes) -> None:
    newer = WORLD.with_policy()
    routes.adopt_overlay(newer)
    assert routes.overlay is newer
    assert routes.name == TWO[0]
