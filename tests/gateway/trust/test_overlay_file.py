"""The signed overlay as a file: what it holds, for whom its boxes open, and that no older one comes back."""

from __future__ import annotations

import json

import pytest

from bridge.document.overlay import OverlayError
from gateway.files import stamp
from gateway.trust.domains import LocalIdentity, TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import describe_overlay, load_overlay, load_secrets, save_overlay
from keys.epochs import KeyName
from keys.identity import Role
from tests.gateway.trust.test_domains import mode
from tests.support.parties import HOSTS, NOW, NOW_MS, Parties


def test_the_signed_overlay_holds_what_the_owner_wrote(world: Parties) -> None:
    world.sign()
    overlay = load_overlay(world.out, NOW_MS)
    view = overlay.views[1]
    assert (view.name, view.members, view.threshold) == ("north", ("r1", "r2", "r3"), 2)
    assert overlay.members["r2"].address == "127.0.0.1:8882"
    shown = describe_overlay(overlay)
    assert [scope["mode"] for scope in shown["scopes"]] == ["auto", "copies", "plain", "auto"]
    assert "ward" not in world.out.read_text()  # names of a scope with tokens appear nowhere
    assert [(g.member, g.filter) for g in overlay.policy.grants if g.member == "spark"] == [("spark", "pumps/#")]


def test_a_box_opens_the_scopes_of_its_member_and_no_other(world: Parties) -> None:
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


def test_the_box_of_another_member_does_not_open(world: Parties) -> None:
    """Attack: a member with the owner's file wants what is sealed for another."""
    overlay = world.sign().overlay
    thief = world.local("spark")
    taken = LocalIdentity(thief.directory, world.local("g1").card, thief.identity)
    with pytest.raises(TrustError, match="does not open"):
        load_secrets(taken, overlay)


def test_a_box_moved_to_another_member_is_refused(world: Parties) -> None:
    world.sign()
    document = json.loads(world.out.read_text())
    boxes = [entry["box"] for entry in document["members"]]
    for entry, box in zip(document["members"], reversed(boxes), strict=True):
        entry["box"] = box
    world.out.write_text(json.dumps(document))
    with pytest.raises(OverlayError, match="tampered with"):
        load_overlay(world.out, NOW_MS)


def test_a_stranger_gets_nothing(world: Parties) -> None:
    overlay = world.sign().overlay
    TrustDomain.load(world.owner).issue("eve", Role.GATEWAY, HOSTS, world.directory / "eve", NOW)
    with pytest.raises(TrustError, match="eve is no member"):
        load_secrets(world.local("eve"), overlay)


def test_a_member_remembers_the_owner_and_refuses_an_older_version(world: Parties) -> None:
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


@pytest.mark.attack(180)
def test_an_identity_is_of_one_overlay_of_its_owner(world: Parties) -> None:
    """Attack: a file of another overlay of the owner, of a higher version, takes the place of ours."""
    pin = world.directory / "pin.json"
    world.sign()
    load_overlay(world.out, NOW_MS, pin)
    ours = world.out.read_bytes()
    (world.owner / "overlays" / "demo.json").rename(world.directory / "kept.json")
    world.out.unlink()
    other = world.sign(lambda description: description.update(name="other")).overlay
    with pytest.raises(OverlayError, match=r"is overlay other, but .* is an identity of overlay demo; make another"):
        load_overlay(world.out, NOW_MS, pin)
    world.out.write_bytes(ours)
    with pytest.raises(OverlayError, match="is overlay other"):
        save_overlay(world.out, pin, other, stamp(world.out))
    assert world.out.read_bytes() == ours


def test_a_newer_overlay_is_kept_and_never_an_older_one(world: Parties) -> None:
    pin = world.directory / "pin.json"
    first, second = world.sign().overlay, world.sign().overlay
    newest = world.out.read_bytes()
    save_overlay(world.out, pin, first, stamp(world.out))  # the operator put a newer file there meanwhile
    assert world.out.read_bytes() == newest
    save_overlay(world.out, pin, second, stamp(world.out))
    with pytest.raises(OverlayError, match="keep the newer"):
        save_overlay(world.out, pin, first, stamp(world.out))
    world.out.unlink()
    save_overlay(world.out, pin, second, stamp(world.out))
    assert load_overlay(world.out, NOW_MS, pin).policy.version == 2


@pytest.mark.parametrize("act", ["load", "save"])
def test_a_pin_of_before_takes_the_name_of_the_overlay_at_once(world: Parties, act: str) -> None:
    """Else the next file of another overlay of the owner would give the name."""
    pin = world.directory / "pin.json"
    overlay = world.sign().overlay
    load_overlay(world.out, NOW_MS, pin)
    whole = pin.read_text()
    former = {key: value for key, value in json.loads(whole).items() if key != "overlay"}
    pin.write_text(json.dumps(former))
    load_overlay(world.out, NOW_MS, pin, raises_pin=False)
    assert json.loads(pin.read_text()) == former
    if act == "load":
        load_overlay(world.out, NOW_MS, pin)
    else:
        save_overlay(world.out, pin, overlay, stamp(world.out))
    assert pin.read_text() == whole


def test_a_crash_between_file_and_pin_locks_nobody_out(world: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = world.directory / "pin.json"
    world.sign()
    load_overlay(world.out, NOW_MS, pin)
    old = world.out.read_bytes()
    newer = world.sign().overlay
    world.out.write_bytes(old)
    with monkeypatch.context() as patched:
        patched.setattr("gateway.trust.overlay_file.write_private", _crash)
        with pytest.raises(KeyboardInterrupt):
            save_overlay(world.out, pin, newer, stamp(world.out))
    assert load_overlay(world.out, NOW_MS, pin).policy.version == 2


def _crash(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
