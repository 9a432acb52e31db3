"""Which replica is which broker of the planes, and who hangs on it."""

from __future__ import annotations

from collections import Counter

import pytest

from bridge.document import OverlayError, Scope
from bridge.topology import Planes, peers_of
from keys.envelope import Mode
from tests.sim.world import make_world

SCOPE = Scope("plant/#", Mode.PLAIN, planes=True)
OVERLAY = make_world({1: 3, 2: 5}, [(1, 2)], {"site": 1}, [SCOPE]).overlay


def test_the_smallest_region_says_how_many_planes_there_are_and_further_replicas_stand_by() -> None:
    planes = Planes(OVERLAY)
    members = OVERLAY.views[2].members
    assert planes.plane_count(SCOPE) == 3
    assert [planes.place_of(SCOPE, name) for name in members] == [(2, 0), (2, 1), (2, 2), None, None]
    assert [planes.replica((2, plane)) for plane in range(3)] == list(members[:3])


def test_gateways_are_spread_over_planes_by_their_names() -> None:
    planes, again = Planes(OVERLAY), Planes(OVERLAY)
    hosts = [planes.host(SCOPE, f"gateway{number}") for number in range(300)]
    assert hosts == [again.host(SCOPE, f"gateway{number}") for number in range(300)]
    assert min(Counter(hosts).values()) > 60


def test_only_scopes_that_are_to_go_by_planes_do() -> None:
    assert Planes(OVERLAY).is_open(SCOPE)
    assert not Planes(OVERLAY).is_open(Scope("plant/#", Mode.PLAIN))


def test_replicas_of_a_region_are_linked_where_a_scope_goes_by_planes() -> None:
    names = OVERLAY.views[1].members
    assert set(names[1:]) <= peers_of(OVERLAY, names[0])
    assert names[0] not in peers_of(OVERLAY, names[0])
    without = make_world({1: 3, 2: 3}, [(1, 2)], {}, [Scope("plant/#", Mode.PLAIN)]).overlay
    assert not peers_of(without, "r1a") & set(without.views[1].members)


def test_the_signed_scope_says_it() -> None:
    assert Scope.decode(SCOPE.encode()) == SCOPE


@pytest.mark.parametrize("scope", [Scope("plant/#", planes=True), Scope("plant/#", Mode.BLOCKS, planes=True)])
def test_content_of_sealed_scopes_takes_detours_and_does_not_go_by_planes(scope: Scope) -> None:
    overlay = make_world({1: 3, 2: 3}, [(1, 2)], {}, [scope]).overlay
    (signed,) = overlay.policy.scopes
    assert not Planes(overlay).is_open(signed)
    assert Planes(overlay).detours(signed)
    assert not Planes(OVERLAY).detours(SCOPE), "a plain scope goes by planes"


def test_hosted_brokers_know_no_planes() -> None:
    with pytest.raises(OverlayError, match="the hosted broker r1a knows none"):
        make_world({1: 3}, [], {}, [SCOPE], hosted=["r1a"])
