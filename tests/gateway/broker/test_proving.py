"""Logins that take time: a plugin hashes, and something happens meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import dynamic
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User, changing
from gateway.mqtt5.types import ReasonCode
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
