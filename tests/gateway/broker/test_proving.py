"""Logins that take time: a plugin hashes, and something happens meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import dynamic, passwords
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User, changing
from gateway.mqtt5.types import ReasonCode
from gateway.sockets import door
from tests.gateway.harness import Wire, serving
from tests.waits import until

DYNAMIC = "gateway.auth.dynamic.DynamicPlugin"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dynamic, "LOOK_S", 0.01)
    made = tmp_path / "security.json"
    Security(users={"ann": User(hash=make_hash(b"pw", os.urandom, 1), acl=["topic readwrite #"])}).save(made)
    return made


def test_a_login_that_was_right_before_the_change_does_not_count_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its password is hashed while the user is removed."""

    async def check() -> None:
        async with serving({"plugins": {DYNAMIC: {"file": str(path)}}, "allow_anonymous": False}) as broker:
            plugin = broker.host.plugins[0]
            asked, go_on = asyncio.Event(), asyncio.Event()
            authenticate = plugin.authenticate

            async def slow(*, session: Any) -> Any:
                found = await authenticate(session=session)
                asked.set()
                await go_on.wait()
                return found

            monkeypatch.setattr(plugin, "authenticate", slow)
            connecting = asyncio.ensure_future(Wire.connect(broker, "late", username="ann", password=b"pw"))
            await asked.wait()
            with changing(path) as security:
                del security.users["ann"]
            await until(lambda: "ann" not in plugin.security.users)
            go_on.set()
            wire = await connecting
            assert wire.connack is not None
            assert wire.connack.code == ReasonCode.SERVER_BUSY
            assert dict(broker.clients()) == {}

    asyncio.run(check())


@pytest.mark.parametrize(
    ("guesses", "devices", "judged", "codes"),
    [
        (60, 0, 5, {0x86: 5, 0x97: 55}),  # a guesser who sends all at once
        (0, 60, 60, {0: 60}),  # devices behind one address that come back together
        (3, 40, 43, {0x86: 3, 0: 40}),
    ],
)
def test_passwords_that_come_at_once_are_counted_before_they_are_judged(
    path: Path, monkeypatch: pytest.MonkeyPatch, guesses: int, devices: int, judged: int, codes: dict[int, int]
) -> None:
    monkeypatch.setattr(door, "origin_of", lambda host: "192.0.2.1")
    monkeypatch.setattr(passwords, "REMEMBERED_S", 0.0)

    async def check() -> None:
        config = {"plugins": {DYNAMIC: {"file": str(path)}}, "allow_anonymous": False, "limits": {"login_failures": 5}}
        async with serving(config) as broker:
            broker.lifecycle.failures._now = lambda: 0.0
            plugin = broker.host.plugins[0]
            asked, at_once, most = 0, 0, 0
            authenticate = plugin.authenticate

            async def counted(*, session: Any) -> Any:
                nonlocal asked, at_once, most
                asked, at_once = asked + 1, at_once + 1
                most = max(most, at_once)
                try:
                    return await authenticate(session=session)
                finally:
                    at_once -= 1

            monkeypatch.setattr(plugin, "authenticate", counted)
            given = [b"wrong"] * guesses + [b"pw"] * devices
            wires = await asyncio.gather(
                *(Wire.connect(broker, f"c{n}", username="ann", password=one) for n, one in enumerate(given))
            )
            assert Counter(wire.connack.code for wire in wires if wire.connack) == codes
            assert asked == judged
            assert most <= 5
            assert not broker.lifecycle.failures._judged
            assert not broker.lifecycle.failures._waiting

    asyncio.run(check())
