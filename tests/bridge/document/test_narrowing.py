"""What a version that waits for a restart takes away at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document.narrowing import narrowed
from bridge.document.overlay import Overlay
from keys.grants import Grant, Right
from tests.sim.world import make_world

pytestmark = pytest.mark.invariant(54)

WORLD = make_world({1: 3}, [], {"site": 1, "near": 1})
OLD = WORLD.overlay
PLANT = OLD.policy.scopes[0]


def newer(*grants: Grant, without: str = "") -> Overlay:
    assert WORLD.owner is not None
    members = [member for name, member in OLD.members.items() if name != without]
    return Overlay.sign(WORLD.owner, replace(OLD.policy, version=2, grants=grants), OLD.latest.values(), members)


def test_rights_are_those_that_both_have() -> None:
    both = narrowed(OLD, newer(Grant("near", "#", Right.READ, last_epoch=3), Grant("near", "more/#", Right.READ)))
    assert both.may_read("near", PLANT, 3)
    assert not both.may_read("near", PLANT, 4)
    assert not both.may_publish_in("near", PLANT, 0)
    assert not both.may_read("site", PLANT, 0)
    assert OLD.may_read("site", PLANT, 0), "the former value stays as it was"
    assert {grant.filter for grant in both.grants_of("near")} == {"#"}, "nothing is added"


def test_clients_that_are_gone_are_strangers_and_replicas_stay() -> None:
    both = narrowed(OLD, newer(*OLD.policy.grants, without="near"))
    assert set(both.members) == set(OLD.members) - {"near"}
    assert WORLD.identities["near"].party_id not in both.by_party
    assert both.may_read("site", PLANT, 0)
    assert both.policy is OLD.policy
