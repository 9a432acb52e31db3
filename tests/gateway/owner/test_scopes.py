"""What keeps a scope from being read stays as it was signed, unless the owner says that nothing waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.document.policy import Protection
from gateway.owner.record import record_path
from gateway.owner.signing import grant
from gateway.trust.domains import TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import load_overlay
from keys.grants import Right
from tests.support.parties import NOW, NOW_MS, Parties

SEALED, PLAIN, SHARES = {"mode": "copies"}, {"mode": "plain"}, {"shares_only": True}
CHANGES = [(SEALED, PLAIN), (PLAIN, SEALED), (SEALED, SHARES), (SHARES, SEALED), (PLAIN, SHARES)]


def described(world: Parties, how: dict[str, Any], filter_: str = "pumps/#") -> None:
    for entry in world.description["scopes"]:
        if entry["filter"] == filter_:
            for name in ("mode", "shares_only"):
                entry.pop(name, None)
            entry.update(how)


@pytest.mark.attack(102)
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_scope_stays_sealed_plain_or_without_an_epoch_key(
    world: Parties, before: dict[str, Any], after: dict[str, Any]
) -> None:
    described(world, before)
    world.sign()
    signed = world.out.read_bytes()
    described(world, after)
    with pytest.raises(TrustError, match=r"scope pumps/# was \w+ and would be \w+, .* filter of its own .* --drained"):
        world.sign()
    assert world.out.read_bytes() == signed
    described(world, before)
    assert world.sign().overlay.policy.version == 2  # nothing of what was refused is remembered


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_the_owner_says_that_nothing_waits(world: Parties, before: dict[str, Any], after: dict[str, Any]) -> None:
    described(world, before)
    first = world.sign().overlay.scope_named("pumps/#")
    described(world, after)
    second = world.sign(drained=True).overlay.scope_named("pumps/#")
    assert first is not None
    assert second is not None
    assert second.protection is not first.protection
    assert world.sign().overlay.scope_named("pumps/#") == second


def test_how_content_travels_changes_at_any_time(world: Parties) -> None:
    for version, mode in enumerate(("auto", "copies", "one", "blocks", "auto"), 1):
        described(world, {"mode": mode})
        assert world.sign().overlay.policy.version == version


def test_what_is_said_of_keys_in_a_plain_scope_is_no_change(world: Parties) -> None:
    described(world, PLAIN)
    world.sign()
    described(world, PLAIN | SHARES)
    assert world.sign().overlay.policy.version == 2


def test_a_scope_that_hides_names_changes_with_its_tokens_and_the_one_of_before_retires_as_it_was(
    world: Parties,
) -> None:
    world.sign()
    described(world, SHARES, "ward/#")
    with pytest.raises(TrustError, match="sign with --new-tokens"):
        world.sign()
    for options in ({"new_tokens": True}, {}):
        policy = world.sign(**options).overlay.policy
        kinds = {scope.protection: scope.retiring for scope in policy.scopes if scope.tokens}
        assert kinds == {Protection.KEYED: True, Protection.SHARES: False}
    ended = world.sign(drop_retiring=True).overlay
    assert {scope.protection for scope in ended.policy.scopes if scope.tokens} == {Protection.SHARES}


def test_what_changes_something_else_leaves_scopes_as_they_were_signed(world: Parties) -> None:
    """Whatever the description says meanwhile."""
    world.sign()
    described(world, PLAIN)
    overlay = grant(world.out, world.owner, "spark", [("public/#", Right.PUBLISH)], NOW)
    scope = overlay.scope_named("pumps/#")
    assert scope is not None
    assert scope.protection is Protection.KEYED
    assert load_overlay(world.out, NOW_MS).scope_named("pumps/#") == scope


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_scope_that_was_away_comes_back_as_it_was(
    world: Parties, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """What of it waits at a gateway that was off meanwhile has seen neither version."""
    described(world, before)
    world.sign()
    entry = next(scope for scope in world.description["scopes"] if scope["filter"] == "pumps/#")
    world.description["scopes"].remove(entry)
    world.sign()
    world.description["scopes"].append(entry)
    described(world, after)
    with pytest.raises(TrustError, match=r"scope pumps/# was \w+ and would be \w+, .* --drained"):
        world.sign()
    world.sign(drained=True)
    assert world.sign().overlay.policy.version == 4  # as it is now, it was signed before


def test_a_record_of_before_knows_how_present_scopes_are_protected(world: Parties) -> None:
    world.sign()
    path = record_path(TrustDomain.load(world.owner), "demo")
    content = json.loads(path.read_bytes())
    del content["protections"]
    path.write_text(json.dumps(content))
    described(world, PLAIN)
    with pytest.raises(TrustError, match="scope pumps/# was sealed and would be plain"):
        world.sign()
