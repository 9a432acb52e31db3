"""Trust domains, identities, rotation, and the signed overlay as members, operators and thieves meet them."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.document.overlay import OverlayError
from gateway.owner.cards import SignOptions
from gateway.owner.description import read_description
from gateway.owner.signing import Signed, sign_overlay
from gateway.trust import rotation
from gateway.trust.domains import IDENTITY_FILES, Card, LocalIdentity, TrustDomain, TrustError, describe, export
from gateway.trust.overlay_file import describe_overlay, load_overlay, load_secrets, save_overlay
from keys.epochs import KeyName
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

    def sign(
        self,
        change: Callable[[dict[str, Any]], object] | None = None,
        now: float | None = None,
        **options: Any,
    ) -> Signed:
        if change:
            change(self.description)
        path = self.directory / "overlay.yaml"
        path.write_text(yaml.safe_dump(self.description))
        when = self.now if now is None else now
        return sign_overlay(path, self.owner, self.out, when, SignOptions(**options))

    def local(self, name: str) -> LocalIdentity:
        return LocalIdentity.load(self.directory / name)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_secret_is_0600_and_every_public_file_readable(world: World) -> None:
    world.sign()
    private = [path for name in ("*.key", "key.pem", "overlays/*.json") for path in world.directory.rglob(name)]
    assert len(private) == 4 * 3 + 5 + 1
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
    assert [scope["mode"] for scope in shown["scopes"]] == ["auto", "copies", "plain", "auto"]
    assert "ward" not in world.out.read_text()  # names of a scope with tokens appear nowhere
    assert [(g.member, g.filter) for g in overlay.policy.grants if g.member == "spark"] == [("spark", "pumps/#")]


def test_a_box_opens_the_scopes_of_its_member_and_no_other(world: World) -> None:
    overlay = world.sign().overlay
    secrets, keys = load_secrets(world.local("g1"), overlay)
    by_name = {s.clear_filter: s for s in secrets}
    assert set(by_name) == {"ward/#", "pumps/#", "public/#", "vault/#"}
    assert by_name["pumps/#"].token_key is None
    held = dict(keys)
    assert set(held) == {KeyName(by_name["ward/#"].scope.filter, 0, 0), KeyName("pumps/#", 0, 0)}
    assert len(set(held.values())) == 2
    of_spark, keys_of_spark = load_secrets(world.local("spark"), overlay)
    assert [s.clear_filter for s in of_spark] == ["pumps/#"]
    assert list(keys_of_spark) == [(KeyName("pumps/#", 0, 0), held[KeyName("pumps/#", 0, 0)])]


def test_the_box_of_another_member_does_not_open(world: World) -> None:
    """Attack: a member with the owner's file wants what is sealed for another."""
    overlay = world.sign().overlay
    thief = world.local("spark")
    taken = LocalIdentity(thief.directory, world.local("g1").card, thief.identity)
    with pytest.raises(TrustError, match="does not open"):
        load_secrets(taken, overlay)


def test_a_box_moved_to_another_member_is_refused(world: World) -> None:
    world.sign()
    document = json.loads(world.out.read_text())
    boxes = [entry["box"] for entry in document["members"]]
    for entry, box in zip(document["members"], reversed(boxes), strict=True):
        entry["box"] = box
    world.out.write_text(json.dumps(document))
    with pytest.raises(OverlayError, match="tampered with"):
        load_overlay(world.out, NOW_MS)


def test_a_stranger_gets_nothing(world: World) -> None:
    overlay = world.sign().overlay
    TrustDomain.load(world.owner).issue("eve", Role.GATEWAY, HOSTS, world.directory / "eve", NOW)
    with pytest.raises(TrustError, match="eve is no member"):
        load_secrets(world.local("eve"), overlay)


def test_rights_in_clear_names_become_tokens_where_the_scope_hides_names(world: World) -> None:
    overlay = world.sign().overlay
    (secret,) = [s for s in load_secrets(world.local("g1"), overlay)[0] if s.token_key]
    assert secret.token_key
    wire = tokenise_topic("ward/7/pulse", secret.token_key)
    assert overlay.scope_of(wire) == secret.scope
    assert overlay.may_publish("g1", wire, 0)  # publish "#" covers the hidden scope too
    assert overlay.may_read("g1", secret.scope, 0)
    assert not overlay.may_read("spark", secret.scope, 0)


def test_versions_follow_from_the_file_that_is_replaced(world: World) -> None:
    def numbers() -> tuple[int, int]:
        overlay = load_overlay(world.out, NOW_MS)
        return overlay.policy.version, overlay.views[1].number

    world.sign()
    assert numbers() == (1, 1)
    world.sign(lambda d: d["scopes"].pop())
    assert numbers() == (2, 1)
    world.sign(lambda d: d["regions"][0]["members"].reverse())  # places stay as signed
    assert numbers() == (3, 1)


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


def test_a_newer_overlay_is_kept_and_never_an_older_one(world: World) -> None:
    pin = world.directory / "pin.json"
    first, second = world.sign().overlay, world.sign().overlay
    newest = world.out.read_bytes()
    save_overlay(world.out, pin, first)  # the operator put a newer file there meanwhile
    assert world.out.read_bytes() == newest
    save_overlay(world.out, pin, second)
    with pytest.raises(OverlayError, match="keep the newer"):
        save_overlay(world.out, pin, first)
    world.out.unlink()
    save_overlay(world.out, pin, second)
    assert load_overlay(world.out, NOW_MS, pin).policy.version == 2


def test_a_crash_between_file_and_pin_locks_nobody_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = world.directory / "pin.json"
    world.sign()
    load_overlay(world.out, NOW_MS, pin)
    old = world.out.read_bytes()
    newer = world.sign().overlay
    world.out.write_bytes(old)
    with monkeypatch.context() as patched:
        patched.setattr("gateway.trust.overlay_file.write_private", _crash)
        with pytest.raises(KeyboardInterrupt):
            save_overlay(world.out, pin, newer)
    assert load_overlay(world.out, NOW_MS, pin).policy.version == 2


def _crash(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


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
        (lambda d: d["scopes"].append({"filter": "pumps/#"}), "scope pumps/# is listed twice"),
        (lambda d: d.update(name="../owner"), "name: string should match"),
        (lambda d: d.update(epochs={"length_s": 60}), "epochs need a key_service"),
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


# ------------------------------------------------------------------------------------------------ rotation


def rotated(world: World, name: str = "g1") -> Path:
    """The card of the next key, made by the party that has the present one."""
    return rotation.prepare(world.directory / name, TrustDomain.load(world.owner), NOW).directory / "card.json"


def test_a_rotation_lists_both_keys_until_the_overlap_ends(world: World) -> None:
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


def test_the_card_of_before_changes_nothing_after_a_rotation(world: World) -> None:
    """The owner's description may name the old file until somebody replaces it."""
    world.sign()
    key = world.sign(cards=(rotated(world),)).overlay.members["g1"].certificate.public_key
    assert world.sign().overlay.members["g1"].certificate.public_key == key


@pytest.mark.parametrize("step", range(2 * len(IDENTITY_FILES)))
def test_a_crash_at_any_step_of_taking_the_next_key_is_mended_by_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch, step: int
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


def test_a_card_for_a_known_name_needs_the_signature_of_the_present_key(world: World) -> None:
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


def test_a_lost_key_is_replaced_on_the_owners_word_and_outdates_what_it_could_fetch(world: World) -> None:
    world.sign()
    domain = TrustDomain.load(world.owner)
    domain.issue("g1", Role.GATEWAY, HOSTS, world.directory / "again", NOW)
    signed = world.sign(cards=(world.directory / "again" / "card.json",), replace_lost=("g1",))
    assert signed.overlay.members["g1"].before is None
    assert signed.bumped == ("pumps/#", "ward/#")
    with pytest.raises(TrustError, match="no new card of that name"):
        world.sign(cards=(world.directory / "again" / "card.json",), replace_lost=("g1",))


def test_only_the_domain_that_issued_an_identity_rotates_it(world: World) -> None:
    with pytest.raises(TrustError, match="was issued by owner-org"):
        rotation.prepare(world.directory / "g1", TrustDomain.load(world.directory / "party1"), NOW)
    rotated(world)
    with pytest.raises(TrustError, match="is prepared already"):
        rotated(world)


def test_an_export_is_public_and_brings_the_card(world: World) -> None:
    out = world.directory / "out.pem"
    export(world.directory / "g1", out)
    assert Card.load(out) == world.local("g1").card
    assert b"PRIVATE" not in out.read_bytes()
    export(world.owner, out)
    assert b"PRIVATE" not in out.read_bytes()
    assert out.read_bytes().count(b"BEGIN") == 2
