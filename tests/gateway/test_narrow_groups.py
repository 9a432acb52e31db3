"""What a gateway says of its shared groups follows from what their members may receive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import dynamic
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User
from gateway.clients import LocalGroup
from gateway.mqtt5.packets import Disconnect, Version
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.waits import until

PLUGIN = "gateway.auth.dynamic.DynamicPlugin"
GROUP = "$share/w/plant/#"
HASHED = make_hash(b"pw", os.urandom, 1)


def write(path: Path, **acl: str) -> None:
    users = {name: User(hash=HASHED, acl=lines.split(";")) for name, lines in acl.items()}
    Security(users=users).save(path)


class Groups(FakeOverlay):
    """An overlay that remembers what it was told last of each group."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[LocalGroup] = []

    def group_joined(self, group: LocalGroup) -> None:
        self.told.append(group)

    def group_left(self, group: str, topic_filter: str) -> None:
        """Not looked at."""


async def member(broker: Any, name: str, version: Version) -> Wire:
    wire = await Wire.connect(broker, name, version, username=name, password=b"pw")
    assert await wire.subscribe(GROUP, 1) == 1
    return wire


@pytest.mark.attack(141)
@on_loop
async def test_groups_of_a_user_count_for_the_user_however_many_clients_it_has(tmp_path: Path) -> None:
    """Attack: a user joins a thousand junk groups, each under a client id of its own: each was an owner of its own."""
    path, overlay = tmp_path / "security.json", Groups()
    write(path, evil="topic read plant/#")
    config = {"plugins": {PLUGIN: {"file": str(path)}}, "allow_anonymous": False}
    async with serving(config, overlay=overlay) as broker:
        for number in range(2):
            wire = await Wire.connect(broker, f"evil{number}", username="evil", password=b"pw")
            assert await wire.subscribe(f"$share/junk{number}/plant/#") == 0
        assert [(each.name, each.owner) for each in overlay.told] == [("junk0", "user evil"), ("junk1", "user evil")]


@pytest.mark.attack(140)
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@on_loop
async def test_a_group_is_whole_while_a_member_may_receive_all_of_it(tmp_path: Path, version: Version) -> None:
    """Attack: a client that may read one topic joins another site's group, since the filters overlap."""
    path, overlay = tmp_path / "security.json", Groups()
    write(path, evil="topic read plant/lobby/light", good="topic read plant/#", odd="topic read #;topic deny plant/b/+")
    config = {"plugins": {PLUGIN: {"file": str(path)}}, "allow_anonymous": False}
    async with serving(config, overlay=overlay) as broker:
        evil = await member(broker, "evil", version)
        assert overlay.told == [LocalGroup("w", "plant/#", False, "user evil")]
        await member(broker, "odd", version)
        assert not overlay.told[-1].is_whole, "something is denied within it"
        good = await member(broker, "good", version)
        assert overlay.told[-1] == LocalGroup("w", "plant/#", True, "user good")
        good.send(Disconnect())
        await good.closed()
        await until(lambda: not overlay.told[-1].is_whole)
        await evil.barrier()


@pytest.mark.attack(140)
@on_loop
async def test_rights_that_change_are_told_of_the_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    path, overlay = tmp_path / "security.json", Groups()
    write(path, good="topic read plant/#")
    config = {"plugins": {PLUGIN: {"file": str(path)}}, "allow_anonymous": False}
    async with serving(config, overlay=overlay) as broker:
        good = await member(broker, "good", Version.V5)
        assert overlay.told[-1].is_whole
        write(path, good="topic read plant/a")
        await until(lambda: not overlay.told[-1].is_whole)
        write(path, good="topic read plant/#")
        await until(lambda: overlay.told[-1].is_whole)
        await good.barrier()


@on_loop
async def test_a_plugin_that_judges_messages_only_lets_no_group_be_whole() -> None:
    overlay = Groups()
    config = {"plugins": {"amqtt.plugins.topic_checking.TopicTabooPlugin": {}}}
    async with serving(config, overlay=overlay) as broker:
        wire = await Wire.connect(broker, "any")
        await wire.subscribe(GROUP)
        assert not overlay.told[-1].is_whole, "rather served twice than never"
