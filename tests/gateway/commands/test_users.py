"""`veilmq users` as an operator uses it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from amqtt.contexts import Action

from gateway.auth.passwords import Users
from gateway.auth.security import Security
from gateway.cli import run


def test_users_groups_and_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "security.json")
    assert run(["users", "group", file, "plant", "--rule", "topic readwrite plant/#"]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert run(["users", "add", file, "ann", "--group", "plant", "--rule", "topic read news/#"]) == 0
    assert run(["users", "group", file, "everybody", "--rule", "topic read public/#"]) == 0
    rules = Security.load(Path(file)).checked_rules()
    assert rules.permits("ann", "c", "plant/1", Action.PUBLISH)
    assert rules.permits("ann", "c", "public/1", Action.RECEIVE)
    assert run(["users", "add", file, "ann", "--password", "new"]) == 0  # rules and groups stay
    security = Security.load(Path(file))
    assert security.users["ann"].groups == ["plant"]
    assert Users(security.hashes).check_password("ann", b"new")
    capsys.readouterr()
    assert run(["users", "list", file, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["users"]["ann"] == {"groups": ["plant"], "acl": ["topic read news/#"], "enabled": True}
    assert run(["users", "list", file]) == 0
    assert "$7$" not in capsys.readouterr().out
    assert run(["users", "remove", file, "ann"]) == 0
    assert run(["users", "group", file, "plant", "-D"]) == 0
    assert Security.load(Path(file)).groups == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "FILE", "ann", "--password", ""], "empty password"),
        (["add", "FILE", "a b", "--password", "x"], "no name"),
        (["add", "FILE", "ann", "--password", "x", "--group", "g"], "no group g"),
        (["add", "FILE", "ann", "--password", "x", "--rule", "user bob"], "neither topic"),
        (["remove", "FILE", "ann"], "no user ann"),
        (["group", "FILE", "g", "-D"], "no group g"),
        (["add", "/nowhere/at/all", "ann", "--password", "x"], "No such file"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    file = tmp_path / "security.json"
    assert run(["users", *(str(file) if each == "FILE" else each for each in arguments)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not file.exists()


def test_the_first_user_makes_the_data_directory_for_its_owner_alone(tmp_path: Path) -> None:
    """The first command of the console's page, before the broker ever ran."""
    assert run(["users", "add", str(tmp_path / "data" / "security.json"), "ann", "--password", "x"]) == 0
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
