"""`veilmq tokens` as an operator uses it, and that the broker's own object reads what the command wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from gateway.auth.api_tokens import FILE, ApiTokens
from gateway.auth.password_hashes import make_hash
from gateway.auth.passwords import Users
from gateway.auth.security import Security, User
from gateway.cli import run


def configured(directory: Path, **more: object) -> str:
    data = directory / "data"
    data.mkdir(mode=0o700)
    hashed = make_hash(b"pw", os.urandom, 1)
    users = {"ann": User(hash=hashed), "off": User(hash=hashed, enabled=False)}
    Security(users=users).save(data / "security.json")
    content: dict[str, object] = {
        "data": "data", "console": {"token_days": 30},
        "plugins": {"gateway.auth.dynamic.DynamicPlugin": {"file": "data/security.json"}}, **more,
    }  # fmt: skip
    path = directory / "broker.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in content.items() if value is not None}))
    return str(path)


def test_add_list_revoke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configured(tmp_path)
    known = Users(Security.load(tmp_path / "data" / "security.json").hashes)
    broker = ApiTokens(tmp_path / "data" / FILE, os.urandom, known.mark_of)
    assert run(["tokens", "add", "-c", config, "ann", "--days", "7", "--note", "backup script"]) == 0
    shown = capsys.readouterr()
    secret = shown.out.strip()
    assert "ann" in shown.err
    assert broker.user_of(secret, 0.0) == "ann"
    assert run(["tokens", "add", "-c", config, "ann", "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert run(["tokens", "list", "-c", config, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["note"] for one in listed] == ["backup script", ""]
    assert listed[1]["id"] == second["id"]
    assert run(["tokens", "list", "-c", config]) == 0
    table = capsys.readouterr().out
    assert "backup script" in table
    assert secret not in table
    assert run(["tokens", "revoke", "-c", config, listed[0]["id"]]) == 0
    assert broker.user_of(secret, 0.0) is None
    assert broker.user_of(second["token"], 0.0) == "ann"


@pytest.mark.parametrize(
    ("arguments", "more", "said"),
    [
        (["add", "ann", "--days", "31"], {}, "1 to 30 days"),
        (["add", "ann", "--note", "a\nb"], {}, "one line"),
        (["add", "nan"], {}, "no user nan"),
        (["add", "off"], {}, "no user off"),
        (["revoke", "0123456789ab"], {}, "no token 0123456789ab"),
        (["list"], {"console": None}, "no console section"),
        (["list"], {"data": None}, "no data directory"),
        (["list"], {"data": "elsewhere"}, "No such file"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], more: dict[str, object], said: str
) -> None:
    config = configured(tmp_path, **more)
    assert run(["tokens", arguments[0], "-c", config, *arguments[1:]]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "data" / FILE).exists()


def test_a_file_that_the_broker_could_not_read_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert run(["tokens", "add", "-c", config, "ann"]) == 2
    assert "run this as that user" in capsys.readouterr().err
    assert not (tmp_path / "data" / FILE).exists()
