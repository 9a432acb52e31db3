"""Users who are removed, disabled or get another password while their clients are connected or away."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import dynamic
from gateway.auth.password_file import PasswordFile
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User, changing
from gateway.mqtt5.packets import Disconnect, Version
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import Action
from gateway.scram_plugin import ScramUsers, set_user
from tests.gateway.harness import Wire, serving
from tests.waits import until

DYNAMIC = "gateway.auth.dynamic.DynamicPlugin"
NAMES = ("ann", "bob", "off")


def hashed(password: bytes = b"pw") -> str:
    return make_hash(password, os.urandom, 1)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    made = tmp_path / "security.json"
    Security(users={name: User(hash=hashed(), acl=["topic readwrite #"]) for name in NAMES}).save(made)
    return made


async def client(broker: Any, name: str, client_id: str, version: Version = Version.V5) -> Wire:
    properties = {"session_expiry_s": 100} if version is Version.V5 else {}
    wire = await Wire.connect(
        broker, client_id, username=name, password=b"pw", version=version, clean_start=False, properties=properties
    )
    assert wire.connack is not None
    assert wire.connack.code == 0
    await wire.subscribe("t", 1)
    return wire


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_removal_ends_connections_and_sessions_and_a_new_password_connections(path: Path, version: Version) -> None:
    async def check() -> None:
        async with serving({"plugins": {DYNAMIC: {"file": str(path)}}, "allow_anonymous": False}) as broker:
            wires = {name: await client(broker, name, name, version) for name in NAMES}
            away = await client(broker, "ann", "ann-away", version)
            away.cut()
            await until(lambda: dict(broker.clients())["ann-away"] is False)
            with changing(path) as security:
                del security.users["ann"]
                security.users["off"].enabled = False
            await until(lambda: dict(broker.clients()) == {"bob": True})
            if version is Version.V5:
                for name in ("ann", "off"):
                    assert (await wires[name].expect(Disconnect)).code == ReasonCode.ADMINISTRATIVE_ACTION
            with changing(path) as security:
                security.users["bob"].acl = ["topic read t"]
            await until(lambda: not broker.host.verdict(broker.lifecycle.clients["bob"].view, "x", Action.PUBLISH))
            assert dict(broker.clients()) == {"bob": True}, "other rights end no connection"
            with changing(path) as security:
                security.users["bob"].hash = hashed(b"new")
            await until(lambda: dict(broker.clients()) == {"bob": False})

    asyncio.run(check())


def test_what_a_reload_takes_away_ends_too(tmp_path: Path) -> None:
    """A password file and a file of SCRAM users are read again on SIGHUP."""
    path, scram = tmp_path / "passwords", tmp_path / "scram.yaml"
    file = PasswordFile(path)
    for name in NAMES:
        file.put_hash(name, hashed())
    file.save()
    for name in NAMES:
        set_user(scram, name, "pw", 4096)

    async def check() -> None:
        plugins = {
            "gateway.auth.passwords.PasswordPlugin": {"password_file": str(path)},
            "gateway.scram_plugin.ScramPlugin": {"users_file": str(scram)},
        }
        async with serving({"plugins": plugins, "allow_anonymous": False}) as broker:
            password, scram_plugin = broker.host.plugins
            told: list[frozenset[str]] = []
            broker.host.follow_users(told.append)
            for name in ("ann", "bob"):
                await client(broker, name, name)
            file = PasswordFile(path)
            file.remove_user("ann")
            file.save()
            password.reread({})()
            assert dict(broker.clients()) == {"ann": False, "bob": True}, "SCRAM knows ann still"
            users = ScramUsers.load(scram)
            rest = {name: known for name, known in users.verifiers.items() if name != "ann"}
            ScramUsers(rest, users.decoy_key).save(scram)
            scram_plugin.reread({})()
            assert dict(broker.clients()) == {"bob": True}
            assert told == [frozenset({"ann"}), frozenset({"ann"})]
            assert [broker.host.standing(name) is None for name in ("ann", "bob", "nobody")] == [True, False, True]

    asyncio.run(check())
