"""The file of SCRAM users: private, without passwords, and one line for what is wrong with it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.scram import ITERATIONS_MIN
from gateway.base.config import StartError, parse
from gateway.broker.running import make_broker
from gateway.scram_plugin import ScramUsers, set_user
from tests import forking
from tests.gateway.auth.test_scram import Client

SCRAM = "gateway.scram_plugin.ScramPlugin"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "scram.yaml"
    for name in ("nurse", "doctor"):
        set_user(path, name, f"{name}'s", ITERATIONS_MIN)
    return path


def config(users: Path, **more: Any) -> dict[str, Any]:
    return {"plugins": {SCRAM: {"users_file": str(users)}}, "allow_anonymous": False, **more}


def scram(name: str = "nurse", password: str = "") -> Client:
    return Client(password or f"{name}'s", name, gs2="n,,")


def test_the_file_is_private_and_holds_no_password(users: Path) -> None:
    assert users.stat().st_mode & 0o777 == 0o600
    text = users.read_text()
    assert "nurse's" not in text
    before = ScramUsers.load(users)
    set_user(users, "nurse", "another", ITERATIONS_MIN)
    after = ScramUsers.load(users)
    assert before.decoy_key == after.decoy_key
    assert before.verifiers["doctor"] == after.verifiers["doctor"]
    assert before.verifiers["nurse"] != after.verifiers["nurse"]
    assert "doctor" not in repr(after)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nurse: x", "holds more or less"),
        ("users: {nurse: x}", "user nurse: not of the form"),
        ("users: {}", "decoy_key"),
        ("users: {}\ndecoy_key: AAAA", "decoy_key"),
        ("{", "not valid YAML"),
        ("users: {n: SCRAM-SHA-256$1000:AAAA$AAAA:AAAA}", "1000 iterations"),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "scram.yaml"
    path.write_text(content)
    path.chmod(0o600)

    async def check() -> None:
        with pytest.raises(StartError) as wrong:
            make_broker(parse({"plugins": {SCRAM: {"users_file": str(path)}}}))
        assert said in str(wrong.value)
        assert str(path) in str(wrong.value)
        assert "\n" not in str(wrong.value)

    asyncio.run(check())


def test_a_file_that_others_may_read_is_refused(users: Path) -> None:
    users.chmod(0o644)

    async def check() -> None:
        with pytest.raises(StartError, match="chmod 600"):
            make_broker(parse(config(users)))

    asyncio.run(check())


@pytest.mark.attack(161)
def test_users_set_in_parallel_are_all_there(users: Path) -> None:
    made = "import sys; from gateway.scram_plugin import set_user\n"
    made += f"for n in range(5): set_user(sys.argv[1], f'{{sys.argv[2]}}{{n}}', 'pw', {ITERATIONS_MIN})"
    said = users.with_name("said")
    writers = [forking.run(["-c", made, str(users), name], None, os.environ, said, said) for name in "abc"]
    assert [one.wait(60) for one in writers] == [0, 0, 0]
    assert len(ScramUsers.load(users).verifiers) == 17
