"""Trust domains, identities, rotation, and the signed overlay as members, operators and thieves meet them."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from bridge.document.overlay import OverlayError
from gateway.trust.domains import Card, LocalIdentity, TrustDomain, describe, export
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import load_overlay, load_secrets
from keys.identity import Role
from keys.topictokens import tokenise_topic
from tests.support.parties import HOSTS, NOW, NOW_MS, Parties


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_secret_is_0600_and_every_public_file_readable(world: Parties) -> None:
    world.sign()
    private = [path for name in ("*.key", "key.pem", "overlays/*.json") for path in world.directory.rglob(name)]
    assert len(private) == 4 * 3 + 5 + 1
    assert {mode(path) for path in private} == {0o600}
    assert {mode(path) for path in world.directory.rglob("c*.pem")} == {0o644}


@pytest.mark.parametrize("name", ["ca.key", "owner.key", "root.key"])
def test_a_private_file_that_others_may_read_is_refused_with_the_cure(world: Parties, name: str) -> None:
    (world.owner / name).chmod(0o640)
    with pytest.raises(TrustError, match=f"{name}: mode 0640 lets others read a secret; chmod 600"):
        TrustDomain.load(world.owner)


def test_an_identity_key_that_others_may_read_is_refused(world: Parties) -> None:
    (world.directory / "g1" / "key.pem").chmod(0o604)
    with pytest.raises(TrustError, match="chmod 600"):
        LocalIdentity.load(world.directory / "g1")


def test_nothing_existing_is_overwritten(world: Parties) -> None:
    before = (world.owner / "root.key").read_bytes()
    with pytest.raises(TrustError, match="holds a trust domain already"):
        TrustDomain.create(world.owner, "again", NOW)
    with pytest.raises(TrustError, match="holds an identity already"):
        TrustDomain.load(world.owner).issue("g1", Role.GATEWAY, HOSTS, world.directory / "g1", NOW)
    assert (world.owner / "root.key").read_bytes() == before


def test_secrets_show_in_no_repr_and_no_description(world: Parties) -> None:
    world.sign()
    domain = TrustDomain.load(world.owner)
    local = LocalIdentity.load(world.directory / "g1")
    secrets = [domain.root, domain.ca.private_bytes(), domain.owner.private_bytes(), local.identity.private_bytes()]
    shown = "".join(
        [repr(domain), repr(local), json.dumps(describe(world.owner)), json.dumps(describe(world.directory / "g1"))]
    )
    for secret in secrets:
        assert secret.hex() not in shown
        assert base64.b64encode(secret).decode() not in shown
        assert repr(secret)[2:-1] not in shown


def test_a_card_with_another_key_or_name_is_refused(world: Parties) -> None:
    """Attack: bring in one's own key under the name and role of somebody else's card."""
    path = world.directory / "r1" / "card.json"
    other = Card.load(world.directory / "r2" / "card.json")
    for field, value in [
        ("public_key", base64.b64encode(other.public_key).decode()),
        ("name", "r9"),
        ("role", "gateway"),
        ("agreement_key", base64.b64encode(other.agreement_key).decode()),
        ("former", base64.b64encode(other.public_key).decode()),
        ("ca", base64.b64encode(other.ca).decode()),
        ("role", "king"),
        ("veilmq_card", 1),
    ]:
        fields = json.loads(path.read_bytes())
        fields[field] = value
        changed = world.directory / "changed.json"
        changed.write_text(json.dumps(fields))
        with pytest.raises(TrustError, match="not an unaltered card"):
            Card.load(changed)


def test_files_of_two_identities_do_not_mix(world: Parties) -> None:
    stolen = world.directory / "r1" / "card.json"
    stolen.write_bytes((world.directory / "r2" / "card.json").read_bytes())
    with pytest.raises(TrustError, match="different keys"):
        LocalIdentity.load(world.directory / "r1")


def test_rights_in_clear_names_become_tokens_where_the_scope_hides_names(world: Parties) -> None:
    overlay = world.sign().overlay
    (secret,) = [s for s in load_secrets(world.local("g1"), overlay)[0] if s.token_key]
    assert secret.token_key
    wire = tokenise_topic("ward/7/pulse", secret.token_key)
    assert overlay.scope_of(wire) == secret.scope
    assert overlay.may_publish("g1", wire, 0)  # publish "#" covers the hidden scope too
    assert overlay.may_read("g1", secret.scope, 0)
    assert not overlay.may_read("spark", secret.scope, 0)


def test_versions_follow_from_the_file_that_is_replaced(world: Parties) -> None:
    def numbers() -> tuple[int, int]:
        overlay = load_overlay(world.out, NOW_MS)
        return overlay.policy.version, overlay.views[1].number

    world.sign()
    assert numbers() == (1, 1)
    world.sign(lambda d: d["scopes"].pop())
    assert numbers() == (2, 1)
    world.sign(lambda d: d["regions"][0]["members"].reverse())  # places stay as signed
    assert numbers() == (3, 1)


def test_another_owner_cannot_replace_the_file_by_accident(world: Parties) -> None:
    world.sign()
    world.owner = world.directory / "party1"
    with pytest.raises(TrustError, match="not this owner's overlay"):
        world.sign()


def test_expired_certificates_are_refused_by_members_and_renewed_by_the_owner(world: Parties) -> None:
    world.sign()
    later = NOW + 366 * 86_400
    with pytest.raises(OverlayError, match="ask the owner to issue it anew"):
        load_overlay(world.out, int(later * 1000))
    world.sign(now=later)
    load_overlay(world.out, int(later * 1000))


def test_an_export_is_public_and_brings_the_card(world: Parties) -> None:
    out = world.directory / "out.pem"
    export(world.directory / "g1", out)
    assert Card.load(out) == world.local("g1").card
    assert b"PRIVATE" not in out.read_bytes()
    export(world.owner, out)
    assert b"PRIVATE" not in out.read_bytes()
    assert out.read_bytes().count(b"BEGIN") == 2
