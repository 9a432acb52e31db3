"""Gateways and ingest jobs come and go by the owner's word alone: who is in, with which rights, and whose keys end."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.owner.gateways import attach_gateway, detach_gateway
from gateway.trust.domains import Card, TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import load_overlay, load_secrets
from keys.grants import Right
from keys.identity import Role
from tests.support.parties import HOSTS, NOW, NOW_MS, Parties, signed

READ_WARD = [("ward/#", Right.READ), ("ward/#", Right.PUBLISH)]


@pytest.fixture
def world(tmp_path: Path) -> Parties:
    TrustDomain.create(tmp_path / "party9", "party9", NOW).issue("g9", Role.GATEWAY, HOSTS, tmp_path / "g9", NOW)
    return signed(tmp_path)


def card(world: Parties, name: str = "g9") -> Card:
    return Card.load(world.directory / name / "card.json")


def test_a_newcomer_is_a_member_with_these_rights_and_no_view_changes(world: Parties) -> None:
    before = load_overlay(world.out, NOW_MS)
    signed = attach_gateway(world.out, world.owner, "north", card(world), READ_WARD, NOW)
    after = load_overlay(world.out, NOW_MS)
    assert after.policy.version == signed.policy.version == before.policy.version + 1
    assert after.latest == before.latest
    assert after.certificate("g9").region == before.certificate("g1").region
    assert after.certificate("g9").not_after_ms == before.certificate("g1").not_after_ms
    assert [one.clear_filter for one in load_secrets(world.local("g9"), after)[0]] == ["ward/#"]
    assert {m for m in after.members if m != "g9"} == set(before.members)


def test_without_rights_it_is_a_member_that_may_nothing(world: Parties) -> None:
    attach_gateway(world.out, world.owner, "north", card(world), [], NOW)
    assert load_secrets(world.local("g9"), load_overlay(world.out, NOW_MS))[0] == []


def test_a_dry_run_writes_nothing(world: Parties) -> None:
    before = world.out.read_bytes()
    attach_gateway(world.out, world.owner, "north", card(world), READ_WARD, NOW, dry_run=True)
    assert world.out.read_bytes() == before
    attach_gateway(world.out, world.owner, "north", card(world), READ_WARD, NOW)


def test_what_is_refused_changes_nothing(world: Parties) -> None:
    before = world.out.read_bytes()
    cases = [
        (card(world, "r1"), "north", [], "r1 is a replica; gateways and ingest jobs join like this"),
        (card(world, "g1"), "north", [], "g1 is a member already"),
        (card(world), "south", [], "there is no region south; known are north"),
        (card(world), "north", [("attic/#", Right.PUBLISH)], "no scope has topics of attic/#"),
    ]
    for newcomer, region, rights, said in cases:
        with pytest.raises(TrustError, match=said):
            attach_gateway(world.out, world.owner, region, newcomer, rights, NOW)
    assert world.out.read_bytes() == before


def test_who_leaves_is_no_member_and_keys_that_it_held_end(world: Parties) -> None:
    attach_gateway(world.out, world.owner, "north", card(world), READ_WARD, NOW)
    bumps = {scope.filter: scope.bump for scope in load_overlay(world.out, NOW_MS).policy.scopes}
    overlay, bumped = detach_gateway(world.out, world.owner, "g9", NOW + 1)
    assert bumped == ("ward/#",)
    assert "g9" not in overlay.members
    assert not [grant for grant in overlay.policy.grants if grant.member == "g9"]
    raised = [scope for scope in overlay.policy.scopes if scope.bump > bumps[scope.filter]]
    assert len(raised) == 1
    with pytest.raises(TrustError, match="no gateway or ingest job is called g9"):
        detach_gateway(world.out, world.owner, "g9", NOW + 2)
    with pytest.raises(TrustError, match="no gateway or ingest job is called r1"):
        detach_gateway(world.out, world.owner, "r1", NOW + 2)


def test_who_may_nothing_leaves_as_well(world: Parties) -> None:
    attach_gateway(world.out, world.owner, "north", card(world), [], NOW)
    overlay, bumped = detach_gateway(world.out, world.owner, "g9", NOW + 1)
    assert bumped == ()
    assert "g9" not in overlay.members
