"""Rights by user name where nothing proves names: `veilmq check` and the broker's log say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.base.config import parse
from gateway.checking.check import check
from tests.gateway.harness import Wire, on_loop, serving

FILE, TABLE = "gateway.auth.acl_file.AclFilePlugin", "gateway.auth.acl_file.AclPlugin"
PASSWORDS, SCRAM = "gateway.auth.passwords.PasswordPlugin", "gateway.scram_plugin.ScramPlugin"
ANYBODY = "amqtt.plugins.authentication.AnonymousAuthPlugin"
BY_USER, OF_ALL = "user nurse\ntopic readwrite ward/#\n", "topic read public/#\npattern read of/%c/#\n"


def configured(path: Path, acl: str, anonymous: bool, plugins: dict[str, Any]) -> dict[str, Any]:
    (path / "acl").write_text(acl)
    (path / "passwords").write_text("nurse:$7$1$AA==$AA==\n")
    return {"allow_anonymous": anonymous, "plugins": {FILE: {"acl_file": str(path / "acl")}, **plugins}}


@pytest.mark.parametrize(
    ("acl", "anonymous", "plugins", "said"),
    [
        (BY_USER, True, {}, True),
        ("pattern readwrite of/%u/#\n", True, {}, True),
        (BY_USER, False, {ANYBODY: {"allow_anonymous": True}}, True),
        (OF_ALL, True, {TABLE: {"publish_acl": {"nurse": ["#"]}}}, True),
        (OF_ALL, True, {TABLE: {"publish_acl": {"*": ["of/%u"]}}}, True),
        (OF_ALL, True, {}, False),
        (OF_ALL, True, {TABLE: {"publish_acl": {"*": ["#"], "anonymous": ["x"]}}}, False),
        (BY_USER, False, {}, False),  # nobody gets in, which is said otherwise
        (BY_USER, True, {PASSWORDS: {"password_file": "passwords"}}, False),
    ],
)
def test_it_is_said_where_names_have_rights_and_need_no_proof(
    tmp_path: Path, acl: str, anonymous: bool, plugins: dict[str, Any], said: bool
) -> None:
    if PASSWORDS in plugins:
        plugins = {PASSWORDS: {"password_file": str(tmp_path / "passwords")}}
    config = configured(tmp_path, acl, anonymous, plugins)
    report = check(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **config}), [])
    found = [finding for finding in report.findings if "ANYBODY MAY CLAIM ANY NAME" in finding.text]
    assert [finding.level for finding in found] == ["warning"] * said
    assert all("\n" not in finding.text for finding in found)


def test_it_is_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever says the name has its rights: the warning is no false alarm, and the log of a start has it."""

    @on_loop
    async def scenario() -> None:
        async with serving(configured(tmp_path, BY_USER, True, {})) as broker:
            wire = await Wire.connect(broker, "c", username="nurse")
            assert await wire.subscribe("ward/1", 0) == 0

    scenario()
    assert "ANYBODY MAY CLAIM ANY NAME" in caplog.text
