"""Who is next for whom in a tree of four regions: 1 - 2 - 3, and 4 beside 2."""

from __future__ import annotations

import pytest

from bridge.document.policy import Scope
from bridge.topology.topology import Topology, peers_of
from keys.errors import NotAuthorised
from tests.sim.world import make_world

WORLD = make_world(
    {1: 3, 2: 3, 3: 3, 4: 3},
    [(1, 2), (2, 3), (2, 4)],
    {"site": 1, "far": 3},
    scopes=[Scope("plant/#"), Scope("near/#", regions=(1, 2))],
)
TOPOLOGY = Topology(WORLD.overlay)
SITE = WORLD.overlay.certificate("site")


def test_neighbours_and_ways() -> None:
    assert set(TOPOLOGY.neighbours(2)) == {1, 3, 4}
    assert TOPOLOGY.next_towards(1, 3, 0) == 2
    assert TOPOLOGY.next_towards(3, 3, 0) is None
    assert TOPOLOGY.last_before(1, 3, 0) == 2
    assert TOPOLOGY.last_before(1, 1, 0) is None
    assert TOPOLOGY.regions_between(1, 3, 0) == 3
    assert TOPOLOGY.is_on_the_way(2, 1, 4, 0)
    assert not TOPOLOGY.is_on_the_way(3, 1, 4, 0)


def test_a_scope_may_enter_its_regions_only() -> None:
    plant, near = WORLD.overlay.policy.scopes
    assert all(TOPOLOGY.carries(region, plant) for region in (1, 2, 3, 4))
    assert [TOPOLOGY.carries(region, near) for region in (1, 2, 3, 4)] == [True, True, False, False]


def test_a_key_states_its_scope_and_its_shares_take_the_way() -> None:
    plant, near = WORLD.overlay.policy.scopes
    assert [hop.region for hop in TOPOLOGY.key_hops(near, 2)] == [2, 1]
    hops = TOPOLOGY.key_hops(plant, 1)
    assert {hop.region for hop in hops} == {1, 2, 3, 4}
    place = TOPOLOGY.place_in(hops, "r2b")
    assert place is not None
    assert (place.region, place.place) == (2, 2)
    assert TOPOLOGY.place_in(hops[:1], "r2b") is None, "a key that was not split for its region"


@pytest.mark.parametrize(("peer", "here"), [("site", 1), ("r1a", 2), ("r2c", 3), ("r2c", 4)])
def test_what_comes_the_way_is_let_in(peer: str, here: int) -> None:
    TOPOLOGY.check_sender(peer, SITE, here, 0)


@pytest.mark.parametrize(("peer", "here"), [("far", 1), ("r1a", 1), ("r3a", 2), ("site", 2), ("r1a", 3), ("r3a", 4)])
def test_what_comes_another_way_is_refused(peer: str, here: int) -> None:
    with pytest.raises(NotAuthorised, match=f"{peer} is not on the way from site"):
        TOPOLOGY.check_sender(peer, SITE, here, 0)


@pytest.mark.parametrize(("peer", "here"), [("site", 1), ("r1a", 1), ("r1a", 2), ("r2b", 2), ("r2c", 3), ("r3a", 3)])
def test_in_planes_our_own_replicas_may_pass_it_on(peer: str, here: int) -> None:
    TOPOLOGY.check_plane_sender(peer, SITE, here, 0)


@pytest.mark.parametrize(("peer", "here"), [("far", 1), ("r2a", 1), ("r3a", 2), ("site", 2), ("r1a", 3), ("r3a", 4)])
def test_in_planes_nothing_comes_back_from_where_it_went_to(peer: str, here: int) -> None:
    with pytest.raises(NotAuthorised, match=f"{peer} is not on the way from site"):
        TOPOLOGY.check_plane_sender(peer, SITE, here, 0)


def test_who_has_links_with_whom() -> None:
    assert peers_of(WORLD.overlay, "site") == {"r1a", "r1b", "r1c"}
    assert peers_of(WORLD.overlay, "r1a") == {"site", "r2a", "r2b", "r2c"}
    assert "r4a" in peers_of(WORLD.overlay, "r2a")
    assert "r4a" not in peers_of(WORLD.overlay, "r3a")
