"""One bad client beside others, in combinations: wills, client ids, groups, retained messages and rights."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.mqtt5.packets import PubAck, Version, Will
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.gateway.test_rights_first import come, config, write
from tests.waits import until


@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_what_a_user_publishes_counts_for_the_user_wills_too(tmp_path: Path, version: Version) -> None:
    """Attack: a user retains under each of a thousand client ids, by their wills: each was an owner of its own."""
    path, overlay = tmp_path / "security.json", FakeOverlay()
    write(path, mallory="topic readwrite #")
    async with serving(config(path), overlay=overlay) as broker:
        will = Will("far/will", b"x", 1, True)
        one = await come(broker, "mallory", version, will=will)
        one.publish("far/own", b"x", 1, retain=True)
        await until(lambda: overlay.published)
        one.cut()
        await until(lambda: len(overlay.published) == 2)
        assert [each.owner for _, each in overlay.published] == ["user mallory"] * 2


@on_loop
async def test_nameless_clients_of_one_address_are_one_owner() -> None:
    overlay = FakeOverlay()
    async with serving(overlay=overlay) as broker:
        for name in ("one", "two"):
            wire = await Wire.connect(broker, name)
            wire.publish("far/own", b"x", 1)
            await until(lambda: overlay.done)
            overlay.done.pop()(0)
            await wire.expect(PubAck)
        assert [(client, each.owner) for client, each in overlay.published] == [("one", "here"), ("two", "here")]
