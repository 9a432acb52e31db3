"""Keys sealed to members withstand who breaks X25519 later: cards, what the owner signs, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.document.overlay import Overlay, OverlayError
from gateway.trust.domains import Card, LocalIdentity, TrustDomain
from gateway.trust.leaves import renew_card
from gateway.trust.overlay_file import load_overlay
from keys.errors import BadContent
from keys.handover import open_grants
from tests.keys.helpers import without_x25519
from tests.support.parties import NOW, NOW_MS, Parties

MEMBER = "spark"


def make_classical(directory: Path) -> None:
    """Gives an identity the card that it would have had before there were hybrid keys."""
    local = LocalIdentity.load(directory)
    card = replace(local.card, agreement_key=local.identity.agreement_bytes)
    (directory / "card.json").write_bytes(card.signed(local.identity, None).to_json())


def bumps(overlay: Overlay) -> dict[str, int]:
    return {scope.filter: scope.bump for scope in overlay.policy.scopes if scope.keyed}


def test_new_identities_and_overlays_are_quantum_safe(world: Parties) -> None:
    overlay = world.sign().overlay
    assert overlay.policy.quantum_safe
    assert overlay.classical() == []
    assert load_overlay(world.out, NOW_MS).policy.quantum_safe


def test_a_member_with_an_older_card_is_named_with_the_cure(world: Parties) -> None:
    make_classical(world.directory / MEMBER)
    with pytest.raises(OverlayError, match=rf"^{MEMBER}: no quantum-safe key .* `veilmq trust renew`"):
        world.sign()
    world.description["quantum_safe"] = "preferred"
    assert world.sign().overlay.classical() == [MEMBER]


def test_a_renewed_card_is_taken_and_all_sealed_scopes_get_new_keys(world: Parties) -> None:
    """Their keys were in boxes that whoever recorded them may open one day."""
    make_classical(world.directory / MEMBER)
    world.description["quantum_safe"] = "preferred"
    before = world.sign().overlay
    assert renew_card(world.directory / MEMBER)
    assert not renew_card(world.directory / MEMBER)
    del world.description["quantum_safe"]
    after = world.sign().overlay
    assert after.policy.quantum_safe
    assert after.classical() == []
    assert bumps(after) == {name: bump + 1 for name, bump in bumps(before).items()}
    assert bumps(world.sign().overlay) == bumps(after), "once"


def test_a_renewed_card_is_of_the_same_key(world: Parties) -> None:
    world.sign()
    directory = world.directory / MEMBER
    before = LocalIdentity.load(directory).card
    make_classical(directory)
    renew_card(directory)
    assert Card.load(directory / "card.json") == before


def test_nobody_but_the_owner_takes_the_requirement_or_a_key_away(world: Parties) -> None:
    """An old version of the file, with its older card, cannot be mixed into the present one."""
    make_classical(world.directory / MEMBER)
    world.description["quantum_safe"] = "preferred"
    world.sign()
    old = json.loads(world.out.read_text())
    renew_card(world.directory / MEMBER)
    del world.description["quantum_safe"]
    world.sign()
    new = json.loads(world.out.read_text())
    mixed = {**new, "members": old["members"]}
    with pytest.raises(OverlayError, match="tampered"):
        Overlay.from_document(mixed, NOW_MS)
    with pytest.raises(OverlayError, match="tampered"):
        Overlay.from_document({**old, "members": new["members"]}, NOW_MS)


def test_a_former_key_without_a_hybrid_part_ends_first(world: Parties) -> None:
    make_classical(world.directory / MEMBER)
    world.description["quantum_safe"] = "preferred"
    world.sign()
    former, domain = LocalIdentity.load(world.directory / MEMBER), TrustDomain.load(world.owner)
    issued = domain.issue(MEMBER, former.role, former.card.hosts, world.directory / "next", NOW, former.identity)
    del world.description["quantum_safe"]
    card = issued.directory / "card.json"
    with pytest.raises(OverlayError, match=f"^{MEMBER}: "):
        world.sign(cards=(card,))
    world.sign(cards=(card,), overlap_hours=0.0)


# -------------------------------------------------------------------------------------------------------- recorder


@pytest.mark.parametrize("is_safe", [True, False])
def test_who_has_every_x25519_key_reads_only_what_is_sealed_classically(world: Parties, is_safe: bool) -> None:
    """The recorder has the overlay file, and derives no private key but those of X25519."""
    if not is_safe:
        world.description["quantum_safe"] = "preferred"
        make_classical(world.directory / MEMBER)
    overlay = world.sign().overlay
    identity = LocalIdentity.load(world.directory / MEMBER).identity
    member = overlay.members[MEMBER]
    honest = open_grants(overlay.policy.overlay, MEMBER, identity, member.box)
    assert any(grant.keys for grant in honest)

    class Recorder:
        def open_box(self, box: bytes, info: bytes) -> bytes:
            return without_x25519(identity).open(box, info)

    if is_safe:
        with pytest.raises(BadContent):
            open_grants(overlay.policy.overlay, MEMBER, Recorder(), member.box)  # type: ignore[arg-type]
    else:
        assert open_grants(overlay.policy.overlay, MEMBER, Recorder(), member.box) == honest  # type: ignore[arg-type]
