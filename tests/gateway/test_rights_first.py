"""Rights before everything: before predicates and their counts, and again before what waited is sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import dynamic
from gateway.auth.enhanced_auth import Proven
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User, UserGroup
from gateway.clients import LocalGroup
from gateway.mqtt5.packets import PubAck, Publish, Version
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.waits import until

PLUGIN = "gateway.auth.dynamic.DynamicPlugin"
HASHED = make_hash(b"pw", os.urandom, 1)


def write(path: Path, **acl: str) -> None:
    Security(users={name: User(hash=HASHED, acl=lines.split(";")) for name, lines in acl.items()}).save(path)


def config(path: Path, **more: Any) -> dict[str, Any]:
    return {"plugins": {PLUGIN: {"file": str(path)}}, "allow_anonymous": False, **more}


async def come(broker: Any, user: str, version: Version = Version.V5, **fields: Any) -> Wire:
    return await Wire.connect(broker, f"{user}-1", version, username=user, password=b"pw", **fields)


async def change(broker: Any, path: Path, **acl: str) -> None:
    """Other rights, which the broker has taken up."""
    before = broker.host.rights_version
    write(path, **acl)
    await until(lambda: broker.host.rights_version > before)


@pytest.mark.attack(145)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@pytest.mark.parametrize("share", ["", "$share/g/"], ids=["alone", "in a group"])
@on_loop
async def test_predicates_of_who_may_not_receive_a_message_tell_nothing_of_it(
    tmp_path: Path, version: Version, share: str
) -> None:
    """Attack: a hundred subscriptions with thresholds; how many did not hold said the value that the ACL hides."""
    path = tmp_path / "security.json"
    write(path, alice="topic readwrite #", eve="topic read public/#", bob="topic read secret/#")
    async with serving(config(path, subscriptions={"predicates": True})) as broker:
        alice, eve, bob = [await come(broker, name, version) for name in ("alice", "eve", "bob")]
        for threshold in range(10):
            assert await eve.subscribe(f"{share}+/level?payload>{threshold}") == 0
        traffic = broker.exchange.traffic
        for topic in ("secret/level", "secret/level", "public/level"):
            alice.publish(topic, b"4", 1)
            await alice.expect(PubAck)
            assert traffic.withheld == (0 if topic[0] == "s" else 6), "of what it may receive it is counted"
        await bob.subscribe("secret/level?payload>7")
        alice.publish("secret/level", b"4", 1)
        await alice.expect(PubAck)
        assert traffic.withheld == 7
        assert await bob.published() == []
        assert {topic for topic, _ in await eve.published()} == {"public/level"}


@pytest.mark.attack(145)
@on_loop
async def test_a_right_that_changes_counts_for_predicates_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    path = tmp_path / "security.json"
    write(path, alice="topic readwrite #", eve="topic read a/#")
    async with serving(config(path, subscriptions={"predicates": True})) as broker:
        alice, eve = await come(broker, "alice"), await come(broker, "eve")
        await eve.subscribe("+/x?payload>1")
        alice.publish("a/x", b"2")
        assert (await eve.expect(Publish)).payload == b"2"
        await change(broker, path, alice="topic readwrite #", eve="topic read b/#")
        for topic in ("a/x", "b/x"):
            alice.publish(topic, b"3")
        await alice.barrier()
        assert await eve.published() == [("b/x", b"3")]


@pytest.mark.attack(146)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_what_waited_when_a_right_ended_does_not_come_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: Version
) -> None:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    path = tmp_path / "security.json"
    write(path, ann="topic readwrite #", bob="topic read #")
    lasting: dict[str, Any] = {"clean_start": False}
    if version is Version.V5:
        lasting["properties"] = {"session_expiry_s": 100}
    async with serving(config(path, limits={"in_flight": 1})) as broker:
        bob, ann = await come(broker, "bob", version, **lasting), await come(broker, "ann", version)
        await bob.subscribe("#", 1)
        for number in range(3):  # the first goes out, the others wait
            ann.publish("secret", b"%d" % number, 1)
        ann.publish("public", b"p", 1)
        await ann.barrier()
        first = await bob.expect(Publish)
        assert first.payload == b"0"
        await change(broker, path, ann="topic readwrite #", bob="topic read public")
        bob.send(PubAck(first.packet_id))
        assert await bob.published() == [("public", b"p")], "slow, and connected"
        await change(broker, path, ann="topic readwrite #", bob="topic read #")
        await bob.barrier()
        bob.cut()
        await until(lambda: not dict(broker.clients())["bob-1"])
        for topic in ("secret", "public"):
            ann.publish(topic, b"away", 1)
        await ann.barrier()
        await change(broker, path, ann="topic readwrite #", bob="topic read public")
        bob = await come(broker, "bob", version, **lasting)
        assert await bob.published() == [("public", b"away")]
        await bob.barrier()
        session = broker.lifecycle.clients["bob-1"].session
        assert (session.figures.dropped_without_right, session.held_bytes) == (3, 0)


@pytest.mark.attack(146)
@on_loop
async def test_what_was_on_its_way_is_not_repeated_after_its_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    path = tmp_path / "security.json"
    write(path, ann="topic readwrite #", bob="topic read #")
    lasting: dict[str, Any] = {"clean_start": False, "properties": {"session_expiry_s": 100}}
    async with serving(config(path)) as broker:
        bob, ann = await come(broker, "bob", **lasting), await come(broker, "ann")
        await bob.subscribe("#", 1)
        ann.publish("secret", b"0", 1)
        assert (await bob.expect(Publish)).payload == b"0"
        bob.cut()
        await until(lambda: not dict(broker.clients())["bob-1"])
        await change(broker, path, ann="topic readwrite #", bob="topic read public")
        bob = await come(broker, "bob", **lasting)
        assert await bob.published() == []
        assert broker.lifecycle.clients["bob-1"].session.held_bytes == 0


@pytest.mark.attack(191)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_a_group_whose_member_loses_its_right_by_its_login_gives_up_its_lease(
    tmp_path: Path, version: Version
) -> None:
    """Attack: a provider takes a user out of a group, and the client goes on, or comes back, with the new token: its
    gateway kept the lease, and what others left to it went to nobody.
    """
    told: list[bool] = []

    class Overlay(FakeOverlay):
        def group_joined(self, group: LocalGroup) -> None:
            told.append(group.is_whole)

    path = tmp_path / "security.json"
    groups = {"all": UserGroup(acl=["topic read plant/#"]), "some": UserGroup(acl=["topic read plant/1"])}
    Security(users={"ann": User(hash=HASHED)}, groups=groups).save(path)
    lasting: dict[str, Any] = {"clean_start": False}
    if version is Version.V5:
        lasting["properties"] = {"session_expiry_s": 100}
    async with serving(config(path), overlay=Overlay()) as broker:
        ann, lifecycle = await come(broker, "ann", version, **lasting), broker.lifecycle
        client = lifecycle.clients["ann-1"]
        lifecycle._proven_again(client, Proven("ann", groups=("all",)))
        assert await ann.subscribe("$share/g/plant/#", 1) == 1
        lifecycle._proven_again(client, Proven("ann", groups=("some",)))
        lifecycle._proven_again(client, Proven("ann", groups=("some",)))
        lifecycle._proven_again(client, Proven("ann", groups=("all",)))
        assert told == [True, False, True], "once for each change"
        ann.cut()
        await until(lambda: not dict(broker.clients())["ann-1"])
        await come(broker, "ann", version, **lasting)  # with a password: no provider says groups
        assert told == [True, False, True, False]
