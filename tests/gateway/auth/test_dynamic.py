"""The plugin whose users change: what somebody else wrote counts from the next look on, what is damaged does not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import dynamic
from gateway.auth.dynamic import DynamicPlugin
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User
from gateway.mqtt5.packets import Publish
from tests.gateway.harness import Wire, serving
from tests.waits import until

PLUGIN = "gateway.auth.dynamic.DynamicPlugin"


def security(**acl: str) -> Security:
    return Security(users={n: User(hash=make_hash(b"pw", os.urandom, 1), acl=[line]) for n, line in acl.items()})


def test_users_and_rules_follow_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    path = tmp_path / "security.json"
    security(ann="topic readwrite a/#").save(path)

    async def code(broker: Any, name: str) -> int:
        wire = await Wire.connect(broker, name, username=name, password=b"pw")
        assert wire.connack is not None
        return wire.connack.code

    async def go() -> None:
        async with serving({"plugins": {PLUGIN: {"file": str(path)}}, "allow_anonymous": False}) as broker:
            assert await code(broker, "ann") == 0
            assert await code(broker, "bob") == 0x86
            plugin = next(p for p in broker.host.plugins if isinstance(p, DynamicPlugin))
            security(bob="topic readwrite a/#").save(path)
            await until(lambda: list(plugin.security.users) == ["bob"])
            assert await code(broker, "ann") == 0x86
            bob = await Wire.connect(broker, "bob", username="bob", password=b"pw")
            assert await bob.subscribe("a/1", 0) == 0
            assert await bob.subscribe("b/1", 0) == 0x87
            bob.publish("a/1", b"mine")
            assert (await bob.expect(Publish)).payload == b"mine"
            path.write_text("{")  # damaged: what was before counts
            await until(lambda: "holds no users and groups" in caplog.text)
            assert await code(broker, "bob") == 0
            assert list(plugin.security.users) == ["bob"]

    asyncio.run(go())


@pytest.mark.attack(162)
def test_another_file_is_followed_once_all_of_the_configuration_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: users are removed from the file that SIGHUP named, and stay, as the former file is looked at."""
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    former, other = tmp_path / "former.json", tmp_path / "other.json"
    security(ann="topic readwrite a/#").save(former)
    security(ann="topic readwrite a/#", bob="topic readwrite a/#").save(other)

    async def go() -> None:
        async with serving({"plugins": {PLUGIN: {"file": str(former)}}, "allow_anonymous": False}) as broker:
            plugin = next(p for p in broker.host.plugins if isinstance(p, DynamicPlugin))
            take = plugin.reread({"file": str(other)})
            await plugin.follow_file()
            assert list(plugin.security.users) == ["ann"], "the rest of the configuration was wrong"
            assert plugin.path == former
            take()
            assert list(plugin.security.users) == ["ann", "bob"]
            security(bob="topic readwrite a/#").save(other)
            await until(lambda: list(plugin.security.users) == ["bob"])
            security(eve="topic readwrite a/#").save(former)
            await plugin.follow_file()
            assert list(plugin.security.users) == ["bob"]

    asyncio.run(go())
