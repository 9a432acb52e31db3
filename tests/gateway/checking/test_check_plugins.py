"""`check` and `broker` agree: what the one calls an error the other does not start with, and the other way round."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.base.config import StartError, load, parse
from gateway.broker.running import make_broker
from gateway.checking.check import check, refuse
from gateway.cli import run
from tests.gateway.harness import on_loop

PASSWORDS = "gateway.auth.passwords.PasswordPlugin"
ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"


def _findings(content: dict[str, Any]) -> dict[str, str]:
    report = check(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **content}), [])
    return {finding.text: finding.level for finding in report.findings}


def test_paths_of_plugins_count_from_the_folder_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    file = tmp_path / "broker.yaml"
    file.write_text(yaml.safe_dump({"plugins": {PASSWORDS: {"password_file": "passwords"}}}))
    assert load(file).plugins[PASSWORDS]["password_file"] == str(tmp_path / "passwords")

    @on_loop
    async def loads() -> None:
        make_broker(load(file))

    loads()


@pytest.mark.parametrize(
    "plugins",
    [
        {"no.such.Plugin": {}},
        {PASSWORDS: {"password_file": "none"}},
        {PASSWORDS: {"passwords_file": "x"}},
        {ACL: {"acl": {"nurse": ["a/#/b"]}}},
        {ACL: {"acl": {"nurse": "a"}}},
    ],
)
def test_a_plugin_that_would_not_load_is_an_error_of_both(plugins: dict[str, Any]) -> None:
    assert "error" in _findings({"plugins": plugins}).values()

    @on_loop
    async def starts() -> None:
        with pytest.raises(StartError):
            make_broker(parse({"plugins": plugins}))

    starts()


def test_an_acl_is_no_login_and_leaves_publishing_open() -> None:
    said = " ".join(
        text for text, level in _findings({"plugins": {ACL: {"acl": {"nurse": ["a"]}}}}).items() if level == "warning"
    )
    assert "no client can log in" in said
    assert "everybody who is connected may publish anything" in said


def test_a_port_in_use_may_be_the_members_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        found = _findings({"listeners": {"default": {"bind": bind}}})
    assert [level for text, level in found.items() if bind in text] == ["warning"]


def test_what_check_calls_an_error_no_broker_starts_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    content = {"listeners": {"default": {"bind": "127.0.0.1:0"}}, "data": "file/below", "allow_anonymous": True}
    file = tmp_path / "broker.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(StartError, match="not a directory"):
        refuse(load(file))
    assert run(["check", "-c", str(file)]) == 2
    assert run(["broker", "-c", str(file)]) == 2
    assert capsys.readouterr().err.count("not a directory") == 2
