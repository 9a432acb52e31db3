"""Trust domains, identities, the signed overlay and grants, as an operator and a thief meet them."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.views import OverlayError
from gateway.overlay_file import (
    describe_overlay,
    grant_path,
    load_grant,
    load_overlay,
    read_description,
    sign_overlay,
)
from gateway.trust import Card, LocalIdentity, TrustDomain, TrustError, describe
from keys.identity import Role
from keys.topictokens import tokenise_topic

NOW = 1_800_000_000.0
NOW_MS = int(NOW * 1000)
HOSTS = ("127.0.0.1",)


class World:
    """An owner, three replicas of three parties, one gateway and one ingest job, as files."""

    def __init__(self, directory: Path, now: float = NOW) -> None:
        self.directory = directory
        self.now = now
        self.owner = directory / "owner"
        TrustDomain.create(self.owner, "owner-org", now)
        for place in range(1, 4):
            party = TrustDomain.create(directory / f"party{place}", f"party{place}", now)
            party.issue(f"r{place}", Role.REPLICA, HOSTS, directory / f"r{place}", now)
        owner = TrustDomain.load(self.owner)
        owner.issue("g1", Role.GATEWAY, HOSTS, directory / "g1", now)
        owner.issue("spark", Role.INGEST, HOSTS, directory / "spark", now)
        self.out = directory / "overlay.json"
        self.description: dict[str, Any] = {
            "name": "demo",
            "regions": [
                {
                    "name": "north",
                    "members": [{"card": f"r{n}/card.json", "address": f"127.0.0.1:{8880 + n}"} for n in (1, 2, 3)],
                }
            ],
            "scopes": [
                {"filter": "ward/#", "tokens": True},
                {"filter": "pumps/#", "mode": "copies"},
                {"filter": "public/#", "mode": "plain"},
                {"filter": "vault/#", "shares_only": True},
            ],
            "members": [
                {
                    "card": "g1/card.json",
                    "region": "north",
                    "publish": ["#"],
                    "read": ["ward/#", "public/#"],
                },
                {"card": "spark/card.json", "region": "north", "read": ["pumps/#"]},
            ],
        }

    def sign(self, change: Callable[[dict[str, Any]], object] | None = None, now: float | None = None) -> Any:
        if change:
            change(self.description)
        path = self.directory / "overlay.yaml"
        path.write_text(yaml.safe_dump(self.description))
        return sign_overlay(path, self.owner, self.out, self.now if now is None else now)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_secret_is_0600_and_every_public_file_readable(world: World) -> None:
    world.sign()
    private = [*world.directory.rglob("*.key"), *world.directory.rglob("key.pem"), *world.directory.rglob("grants/*")]
    assert len(private) == 4 * 3 + 5 + 2
    assert {mode(path) for path in private} == {0o600}
    assert {mode(path) for path in world.directory.rglob("c*.pem")} == {0o644}


@pytest.mark.parametrize("name", ["ca.key", "owner.key", "root.key"])
def test_a_private_file_that_others_may_read_is_refused_with_the_cure(world: World, name: str) -> None:
    (world.owner / name).chmod(0o640)
    with pytest.raises(TrustError, match=f"{name}: mode 0640 lets others read a secret; chmod 600"):
        TrustDomain.load(world.owner)


def test_an_identity_key_that_others_may_read_is_refused(world: World) -> None:
    (world.directory / "g1" / "key.pem").chmod(0o604)
    with pytest.raises(TrustError, match="chmod 600"):
        LocalIdentity.load(world.directory / "g1")


def test_nothing_existing_is_overwritten(world: World) -> None:
    before = (world.owner / "root.key").read_bytes()
    with pytest.raises(TrustError, match="holds a trust domain already"):
        TrustDomain.create(world.owner, "again", NOW)
    with pytest.raises(TrustError, match="holds an identity already"):
        TrustDomain.load(world.owner).issue("g1", Role.GATEWAY, HOSTS, world.directory / "g1", NOW)
    assert (world.owner / "root.key").read_bytes() == before


def test_secrets_show_in_no_repr_and_no_description(world: World) -> None:
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


def test_a_card_with_another_key_or_name_is_refused(world: World) -> None:
    """Attack: bring in one's own key under the name and role of somebody else's card."""
    path = world.directory / "r1" / "card.json"
    other = Card.load(world.directory / "r2" / "card.json")
    for field, value in [
        ("public_key", base64.b64encode(other.public_key).decode()),
        ("name", "r9"),
        ("role", "gateway"),
        ("ca", base64.b64encode(other.ca).decode()),
        ("role", "king"),
        ("veilmq_card", 2),
    ]:
        fields = json.loads(path.read_bytes())
        fields[field] = value
        changed = world.directory / "changed.json"
        changed.write_text(json.dumps(fields))
        with pytest.raises(TrustError, match="not an unaltered card"):
            Card.load(changed)


def test_files_of_two_identities_do_not_mix(world: World) -> None:
    stolen = world.directory / "r1" / "card.json"
    stolen.write_bytes((world.directory / "r2" / "card.json").read_bytes())
    with pytest.raises(TrustError, match="different keys"):
        LocalIdentity.load(world.directory / "r1")


def test_the_signed_overlay_holds_what_the_owner_wrote(world: World) -> None:
    world.sign()
    overlay = load_overlay(world.out, NOW_MS)
    view = overlay.views[1]
    assert (view.name, view.members, view.threshold) == ("north", ("r1", "r2", "r3"), 2)
    assert overlay.members["r2"].address == "127.0.0.1:8882"
    shown = describe_overlay(overlay)
    assert [scope["mode"] for scope in shown["scopes"]] == ["copies", "copies", "plain", "copies"]
    assert "ward" not in world.out.read_text()  # names of a scope with tokens appear nowhere
    assert overlay.certificate("spark").read == ("pumps/#",)


def test_a_grant_opens_the_scopes_of_its_member_and_no_other(world: World) -> None:
    world.sign()
    overlay = load_overlay(world.out, NOW_MS)
    gateway = LocalIdentity.load(world.directory / "g1")
    secrets = {s.clear_filter: s for s in load_grant(grant_path(gateway, world.out), overlay, "g1")}
    assert set(secrets) == {"ward/#", "pumps/#", "public/#", "vault/#"}
    assert secrets["ward/#"].key
    assert secrets["ward/#"].key != secrets["pumps/#"].key
    assert secrets["public/#"].key is None
    assert secrets["vault/#"].key is None
    assert secrets["pumps/#"].token_key is None
    spark = load_grant(world.directory / "grants" / "spark.json", overlay, "spark")
    assert [(s.clear_filter, s.key) for s in spark] == [("pumps/#", secrets["pumps/#"].key)]
    with pytest.raises(TrustError, match="not of g1"):
        load_grant(world.directory / "grants" / "spark.json", overlay, "g1")


def test_rights_in_clear_names_become_tokens_where_the_scope_hides_names(world: World) -> None:
    world.sign()
    overlay = load_overlay(world.out, NOW_MS)
    (secret,) = [s for s in load_grant(world.directory / "grants" / "g1.json", overlay, "g1") if s.token_key]
    assert secret.token_key
    wire = tokenise_topic("ward/7/pulse", secret.token_key)
    certificate = overlay.certificate("g1")
    assert overlay.scope_of(wire) == secret.scope
    assert certificate.may_publish(wire)  # publish "#" covers the hidden scope too
    assert certificate.may_read(wire)
    assert not overlay.certificate("spark").may_read(wire)
    assert certificate.read == (secret.scope.filter, "public/#")


def test_a_key_that_lies_open_or_elsewhere(world: World) -> None:
    world.sign()
    overlay = load_overlay(world.out, NOW_MS)
    gateway = LocalIdentity.load(world.directory / "g1")
    beside = grant_path(gateway, world.out)
    own = gateway.directory / "grant.json"
    own.write_bytes(beside.read_bytes())
    own.chmod(0o644)
    assert grant_path(gateway, world.out) == own
    with pytest.raises(TrustError, match="chmod 600"):
        load_grant(own, overlay, "g1")
    own.chmod(0o600)
    own.write_text("{}")
    with pytest.raises(TrustError, match="is not a grant"):
        load_grant(own, overlay, "g1")


def test_versions_follow_from_the_file_that_is_replaced(world: World) -> None:
    def numbers() -> tuple[int, int]:
        overlay = load_overlay(world.out, NOW_MS)
        return overlay.policy.version, overlay.views[1].number

    world.sign()
    assert numbers() == (1, 1)
    world.sign(lambda d: d["scopes"].pop())
    assert numbers() == (2, 1)
    world.sign(lambda d: d["regions"][0]["members"].reverse())  # places move: shares of both may not mix
    assert numbers() == (3, 2)


def test_a_member_remembers_the_owner_and_refuses_an_older_version(world: World) -> None:
    pin = world.directory / "pin.json"
    world.sign()
    first = world.out.read_bytes()
    load_overlay(world.out, NOW_MS, pin)
    world.sign()
    load_overlay(world.out, NOW_MS, pin)
    world.out.write_bytes(first)
    with pytest.raises(OverlayError, match="is version 1, but 2 was seen before"):
        load_overlay(world.out, NOW_MS, pin)
    world.owner = world.directory / "party1"
    world.out.unlink()
    world.sign()
    with pytest.raises(OverlayError, match="signed by another owner"):
        load_overlay(world.out, NOW_MS, pin)
    assert mode(pin) == 0o600


def test_another_owner_cannot_replace_the_file_by_accident(world: World) -> None:
    world.sign()
    world.owner = world.directory / "party1"
    with pytest.raises(TrustError, match="not this owner's overlay"):
        world.sign()


def test_expired_certificates_are_refused_by_members_and_renewed_by_the_owner(world: World) -> None:
    world.sign()
    later = NOW + 366 * 86_400
    with pytest.raises(OverlayError, match="ask the owner to issue it anew"):
        load_overlay(world.out, int(later * 1000))
    world.sign(now=later)
    load_overlay(world.out, int(later * 1000))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(colour="red"), "colour: extra inputs are not permitted"),
        (lambda d: d["regions"][0]["members"][0].update(address="8883"), "regions.0.members.0.address"),
        (lambda d: d["regions"][0]["members"].pop(), "has 2 replicas and cannot share a secret"),
        (lambda d: d["scopes"].append({"filter": "a/#/b"}), "'#' must be the last level"),
        (lambda d: d["members"][0].update(read=["a+"]), "g1: read: a\\+"),
        (lambda d: d["members"][0].update(region="south"), "there is no region south; known are north"),
        (lambda d: d["members"].append(d["members"][0]), "g1 is listed twice"),
        (lambda d: d["members"][0].update(card="r1/card.json"), "is the card of a replica"),
        (lambda d: d["regions"][0]["members"][0].update(card="none.json"), "No such file"),
        (lambda d: d.update(edges=[["north", "north"]]), "tree"),
    ],
)
def test_a_mistake_in_the_owners_file_is_one_line(
    world: World, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    with pytest.raises((TrustError, OverlayError), match=says) as caught:
        world.sign(change)
    assert "\n" not in str(caught.value)
    assert not world.out.exists()


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [")
    with pytest.raises(TrustError, match=r"x\.yaml:1: not valid YAML"):
        read_description(path)
