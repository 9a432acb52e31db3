"""A new key for an identity: listed beside the former one, taken whatever crashes, and only on the right word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.trust import rotation
from gateway.trust.domains import IDENTITY_FILES, Card, LocalIdentity, TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import load_overlay, load_secrets
from keys.identity import Role
from tests.gateway.trust.test_domains import mode
from tests.support.parties import HOSTS, NOW, NOW_MS, Parties


def rotated(world: Parties, name: str = "g1") -> Path:
    """The card of the next key, made by the party that has the present one."""
    return rotation.prepare(world.directory / name, TrustDomain.load(world.owner), NOW).directory / "card.json"


def test_a_rotation_lists_both_keys_until_the_overlap_ends(world: Parties) -> None:
    world.sign()
    old = world.local("g1").identity
    overlay = world.sign(cards=(rotated(world),), overlap_hours=2).overlay
    member = overlay.members["g1"]
    assert member.before is not None
    assert (member.before.public_key, member.before.not_after_ms) == (old.public_bytes, NOW_MS + 7_200_000)
    rotation.take_next(world.directory / "g1")
    assert world.local("g1").identity.public_bytes == member.certificate.public_key != old.public_bytes
    assert load_secrets(world.local("g1"), overlay)[0]
    assert not rotation.drop_previous(world.directory / "g1", overlay, NOW_MS)
    assert rotation.drop_previous(world.directory / "g1", overlay, NOW_MS + 7_200_000)
    assert not (world.directory / "g1" / "previous").exists()
    assert world.sign(now=NOW + 7_201).overlay.members["g1"].before is None


def test_the_card_of_before_changes_nothing_after_a_rotation(world: Parties) -> None:
    """The owner's description may name the old file until somebody replaces it."""
    world.sign()
    key = world.sign(cards=(rotated(world),)).overlay.members["g1"].certificate.public_key
    assert world.sign().overlay.members["g1"].certificate.public_key == key


@pytest.mark.parametrize("step", range(2 * len(IDENTITY_FILES)))
def test_a_crash_at_any_step_of_taking_the_next_key_is_mended_by_the_next_start(
    world: Parties, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    directory = world.directory / "g1"
    key = Card.load(rotated(world)).public_key
    steps = iter(range(100))
    replace = os.replace

    def crashing(source: Path, target: Path) -> None:
        if next(steps) == step:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("gateway.trust.domains.os.replace", crashing)
        with pytest.raises(KeyboardInterrupt):
            rotation.take_next(directory)
    assert LocalIdentity.load(directory).identity.public_bytes == key
    assert LocalIdentity.load(directory / "previous").name == "g1"
    assert mode(directory / "previous" / "key.pem") == mode(directory / "key.pem") == 0o600


def test_a_card_for_a_known_name_needs_the_signature_of_the_present_key(world: Parties) -> None:
    """Attack: issue oneself an identity of a name that is in the overlay, and hand its card in."""
    world.sign()
    thief = TrustDomain.create(world.directory / "thief", "owner-org", NOW)
    thief.issue("g1", Role.GATEWAY, HOSTS, world.directory / "stolen", NOW)
    card = world.directory / "stolen" / "card.json"
    with pytest.raises(TrustError, match="that key did not sign it"):
        world.sign(cards=(card,))
    former = world.local("spark").identity  # countersigned by a member, but not by the one of that name
    thief.issue("g1", Role.GATEWAY, HOSTS, world.directory / "stolen2", NOW, former)
    with pytest.raises(TrustError, match="that key did not sign it"):
        world.sign(cards=(world.directory / "stolen2" / "card.json",))
    assert load_overlay(world.out, NOW_MS).policy.version == 1


def test_a_lost_key_is_replaced_on_the_owners_word_and_outdates_what_it_could_fetch(world: Parties) -> None:
    world.sign()
    domain = TrustDomain.load(world.owner)
    domain.issue("g1", Role.GATEWAY, HOSTS, world.directory / "again", NOW)
    signed = world.sign(cards=(world.directory / "again" / "card.json",), replace_lost=("g1",))
    assert signed.overlay.members["g1"].before is None
    assert signed.bumped == ("pumps/#", "ward/#")
    with pytest.raises(TrustError, match="no new card of that name"):
        world.sign(cards=(world.directory / "again" / "card.json",), replace_lost=("g1",))


def test_only_the_domain_that_issued_an_identity_rotates_it(world: Parties) -> None:
    with pytest.raises(TrustError, match="was issued by owner-org"):
        rotation.prepare(world.directory / "g1", TrustDomain.load(world.directory / "party1"), NOW)
    rotated(world)
    with pytest.raises(TrustError, match="is prepared already"):
        rotated(world)
