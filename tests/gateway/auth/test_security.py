"""Users, groups and rules as one document: what it permits, what it refuses to hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from amqtt.contexts import Action

from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, SecurityError, User, UserGroup

HASH = make_hash(b"pw", os.urandom, 1)


def user(*acl: str, groups: tuple[str, ...] = (), enabled: bool = True) -> User:
    return User(hash=HASH, acl=list(acl), groups=list(groups), enabled=enabled)


def test_rights_are_ones_own_those_of_groups_and_those_of_everybody() -> None:
    rules = Security(
        users={
            "ann": user("topic readwrite own/#", groups=("plant",)), "bob": user(),
            "off": user("topic #", enabled=False),
        },
        groups={"plant": UserGroup(acl=["topic read plant/#"])},
        everybody=UserGroup(acl=["topic read public/#", "pattern readwrite of/%u/#"]),
    ).checked_rules()  # fmt: skip

    def may(name: str | None, topic: str, action: Action = Action.PUBLISH) -> bool:
        return rules.permits(name, "c", topic, action)

    assert may("ann", "own/x")
    assert may("ann", "plant/x", Action.RECEIVE)
    assert not may("ann", "plant/x")
    assert may("bob", "public/x", Action.RECEIVE)
    assert may("bob", "of/bob/x")
    assert not may("bob", "of/ann/x")
    assert not may("bob", "own/x")
    assert not may("off", "anything")


def test_a_pattern_counts_for_the_user_or_group_under_which_it_stands() -> None:
    rules = Security(
        users={
            "ann": user("pattern readwrite secret/#", "pattern deny secret/%u/#"), "bob": user(groups=("plant",)),
            "eve": user(), "off": user("pattern readwrite #", enabled=False),
        },
        groups={"plant": UserGroup(acl=["pattern read plant/%u/#", "pattern readwrite valves/#"])},
    ).checked_rules()  # fmt: skip

    def may(name: str | None, topic: str, action: Action = Action.PUBLISH) -> bool:
        return rules.permits(name, "c", topic, action)

    assert may("ann", "secret/plan")
    assert not may("ann", "secret/ann/x")
    assert may("bob", "plant/bob/x", Action.RECEIVE)
    assert may("bob", "plant/bob/x", Action.SUBSCRIBE)
    assert not may("bob", "plant/eve/x", Action.RECEIVE)
    assert may("bob", "valves/1")
    for name in ("eve", "off", "nobody", None):
        for topic in ("secret/plan", "valves/1", f"plant/{name}/x", "anything"):
            for action in Action:
                assert not may(name, topic, action), (name, topic, action)
    assert not may("ann", "valves/1")
    assert not may("bob", "secret/plan")


@pytest.mark.parametrize("code", [0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029])
@pytest.mark.parametrize("kind", ["topic", "pattern"])
def test_no_character_in_a_rule_begins_another_users_part(code: int, kind: str) -> None:
    line = f"{kind} read a{chr(code)}user eve{chr(code)}topic readwrite #"
    for security in (
        Security(users={"bob": user(line), "eve": user()}),
        Security(groups={"plant": UserGroup(acl=[line])}),
        Security(everybody=UserGroup(acl=[line])),
    ):
        with pytest.raises(SecurityError, match="ends a line"):
            security.checked_rules()


@pytest.mark.parametrize(
    ("security", "said"),
    [
        (Security(users={"ann": user(groups=("nobody",))}), "no group nobody"),
        (Security(users={"a b": user()}), "no name"),
        (Security(users={"a\nuser b": user()}), "no name"),
        (Security(groups={"a#": UserGroup()}), "no name"),
        (Security(users={"ann": user("user bob")}), "neither topic nor pattern"),
        (Security(users={"ann": user("topic read a\nuser bob")}), "ends a line"),
        (Security(users={"ann": user("")}), "neither"),
        (Security(users={"ann": user("topic ")}), "needs a value"),
        (Security(users={"ann": user("topic read a/#/b")}), "rules"),
        (Security(users={"ann": User(hash="plain")}), "no known kind"),
    ],
)
def test_what_no_document_holds(security: Security, said: str) -> None:
    with pytest.raises(SecurityError, match=said) as error:
        security.checked_rules()
    assert "\n" not in str(error.value)


def test_the_file_is_private_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "security.json"
    assert Security.load(path) == Security()
    made = Security(users={"ann": user("topic read a")})
    made.save(path)
    assert path.stat().st_mode & 0o077 == 0
    assert Security.load(path) == made
    assert HASH not in repr(made)
    path.write_text("{")
    with pytest.raises(SecurityError, match="holds no users"):
        Security.load(path)
    path.chmod(0o644)
    with pytest.raises(SecurityError):
        Security.load(path)
