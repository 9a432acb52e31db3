"""When a member signs with its next key."""

from __future__ import annotations

import random

import pytest

from bridge.contract.machine import Acked, Rotated, Tick
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.publisher.next_key import NEXT_KEY_SETTLE_S
from keys.envelope import PROPERTY_HEADER, from_property, header_of
from keys.identity import Certificate
from tests.bridge.helpers import NOW, gateway, publish
from tests.sim.test_transitions import with_next_key
from tests.sim.world import World
from tests.support.regions import fresh, one_region

pytestmark = pytest.mark.attack(105)


world = fresh(one_region, "site", "control", scopes=[Scope("plant/#")])


def rotated(world: World) -> tuple[GatewayNode, bytes, bytes]:
    """A gateway whose next key is listed since now, and both keys."""
    site, former = gateway(world, "site"), world.identities["site"]
    overlay, following = with_next_key(world, "site")
    site.keeper.overlay = overlay
    site._adopt_overlay(overlay, NOW)
    site.handle(Rotated(following), NOW)
    return site, former.party_id, following.party_id


def signer(site: GatewayNode, sequence: int, now: float) -> bytes:
    wires = publish(site, "plant/t", sequence=sequence, previous=sequence - 1, now=now)
    for replica in wires:
        site.handle(Acked(replica, sequence), now)
    return header_of(from_property(dict(wires["r1a"].properties)[PROPERTY_HEADER])).publisher


def test_the_former_key_signs_until_the_version_got_about(world: World) -> None:
    site, former, following = rotated(world)
    assert signer(site, 1, NOW + 1) == former
    assert site._signing.next_deadline == NOW + NEXT_KEY_SETTLE_S
    assert signer(site, 2, NOW + NEXT_KEY_SETTLE_S - 1) == former
    site.handle(Tick(), NOW + NEXT_KEY_SETTLE_S)
    assert signer(site, 3, NOW + NEXT_KEY_SETTLE_S) == following
    assert site._signing.next_deadline is None


@pytest.mark.attack(107)
def test_a_former_key_that_is_listed_no_more_signs_nothing(world: World) -> None:
    """It was stolen: the owner signs a version without it."""
    site, former, following = rotated(world)
    assert signer(site, 1, NOW + 1) == former
    overlay = site.overlay
    del overlay.by_party[former]
    site._adopt_overlay(overlay, NOW + 2)
    assert signer(site, 2, NOW + 2) == following


def test_a_former_key_signs_no_longer_than_its_certificate_counts(world: World) -> None:
    site, former, following = rotated(world)
    before = site.overlay.by_party[former]
    assert isinstance(before, Certificate)
    site._signing._from = before.not_after_ms / 1000 - 5
    assert signer(site, 1, before.not_after_ms / 1000 + 1) == following


def test_a_clock_that_is_set_back_puts_the_next_key_off_no_further(world: World) -> None:
    site, _, following = rotated(world)
    assert signer(site, 1, NOW - 3600) == following


def test_a_start_with_the_next_key_signs_with_it(world: World) -> None:
    overlay, following = with_next_key(world, "site")
    world.overlay, world.identities["site"] = overlay, following
    site = world.node("site", random.Random(1))
    assert isinstance(site, GatewayNode)
    assert site._signing.identity.party_id == following.party_id
