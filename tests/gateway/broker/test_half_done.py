"""A publication of QoS 2 that receivers here have, and that the overlay refuses: its repetition is for the overlay."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.data import NoRoomError
from gateway.mqtt5.packets import Disconnect, PubComp, PubRec, PubRel, Version
from gateway.mqtt5.types import ReasonCode
from gateway.sessions import store as session_store
from tests.gateway.harness import Wire, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.waits import until

FULL = ReasonCode.QUOTA_EXCEEDED
VERSIONS = pytest.mark.parametrize("version", [Version.V311, Version.V5])


class Late(FakeOverlay):
    """An overlay that answers when the test does, or refuses at once while it `is_full`."""

    is_full = False

    def publish(self, client_id: str, publication: Any, done: Callable[[int], None]) -> bool:
        if not self.is_full:
            return super().publish(client_id, publication, done)
        self.published.append((client_id, publication))
        done(FULL)
        return True


async def device(broker: Any, version: Version) -> Wire:
    stays: dict[str, Any] = {"properties": {"session_expiry_s": 100}} if version == Version.V5 else {}
    return await Wire.connect(broker, "device", version, clean_start=False, **stays)


async def turned_away(wire: Wire) -> None:
    """Reads the end of a connection: no PUBREC, and in MQTT 5 the reason."""
    ends = await wire.closed()
    assert [type(end) for end in ends] == ([Disconnect] if wire.version == Version.V5 else [])
    assert all(end.code == FULL for end in ends)


async def accepted(wire: Wire, overlay: FakeOverlay, packet_id: int) -> None:
    """The overlay takes the newest publication, and the flow ends."""
    overlay.done[-1](0)
    assert (await wire.expect(PubRec)) == PubRec(packet_id)
    wire.send(PubRel(packet_id))
    await wire.expect(PubComp)


def run(check: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(check())  # type: ignore[arg-type]


@pytest.mark.invariant(70)
@VERSIONS
def test_a_late_refusal_ends_the_connection_and_the_repetition_is_for_the_overlay_alone(version: Version) -> None:
    async def check() -> None:
        overlay = Late()
        async with serving(overlay=overlay) as broker:
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("far/#", 2)
            wire = await device(broker, version)
            packet_id = wire.publish("far/1", b"once", 2)
            await until(lambda: overlay.done)
            assert await sub.published() == [("far/1", b"once")]
            overlay.done[0](FULL)
            await turned_away(wire)
            wire = await device(broker, version)
            wire.publish("far/1", b"once", 2, packet_id=packet_id, dup=True)
            await until(lambda: len(overlay.done) == 2)
            await accepted(wire, overlay, packet_id)
            wire.publish("far/1", b"next", 2, packet_id=packet_id)
            await until(lambda: len(overlay.done) == 3)
            await accepted(wire, overlay, packet_id)
            assert await sub.published() == [("far/1", b"next")]
            assert [one.payload for _, one in overlay.published] == [b"once", b"once", b"next"]

    run(check)


@pytest.mark.invariant(70)
@VERSIONS
def test_a_repetition_is_refused_as_often_as_the_overlay_is_full_and_its_receivers_hear_it_once(
    version: Version,
) -> None:
    async def check() -> None:
        overlay = Late()
        async with serving(overlay=overlay) as broker:
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("far/#", 2)
            wire = await device(broker, version)
            packet_id = wire.publish("far/1", b"once", 2)
            await until(lambda: overlay.done)
            overlay.done[0](FULL)
            await turned_away(wire)
            overlay.is_full = True
            for _ in range(3):
                wire = await device(broker, version)
                wire.publish("far/1", b"once", 2, packet_id=packet_id, dup=True)
                await turned_away(wire)
            overlay.is_full = False
            wire = await device(broker, version)
            wire.publish("far/1", b"once", 2, packet_id=packet_id, dup=True)
            await until(lambda: len(overlay.done) == 2)
            await accepted(wire, overlay, packet_id)
            assert await sub.published() == [("far/1", b"once")]

    run(check)


@pytest.mark.invariant(70)
@VERSIONS
@pytest.mark.parametrize("refuses_before", [False, True])
def test_after_a_restart_the_overlay_may_refuse_what_receivers_here_have(
    version: Version, refuses_before: bool, tmp_path: Path
) -> None:
    async def check() -> None:
        overlay, config = Late(), {"data": str(tmp_path / "data")}
        async with serving(config, overlay=overlay) as broker:
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("far/#", 2)
            wire = await device(broker, version)
            packet_id = wire.publish("far/1", b"once", 2)
            await until(lambda: overlay.done)
            assert await sub.published() == [("far/1", b"once")]
            if refuses_before:
                overlay.done[0](FULL)
                await turned_away(wire)
        overlay.is_full = True
        async with serving(config, overlay=overlay) as broker:
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("far/#", 2)
            wire = await device(broker, version)
            wire.publish("far/1", b"once", 2, packet_id=packet_id, dup=True)
            await turned_away(wire)
            overlay.is_full = False
            wire = await device(broker, version)
            wire.publish("far/1", b"once", 2, packet_id=packet_id, dup=True)
            await until(lambda: len(overlay.done) == 2)
            await accepted(wire, overlay, packet_id)
            assert await sub.published() == []

    run(check)


def test_a_program_is_told_at_once_of_a_refusal_if_nobody_here_has_the_publication() -> None:
    async def check() -> None:
        overlay = Late()
        async with serving(overlay=overlay) as broker:
            wire = await device(broker, Version.V5)
            packet_id = wire.publish("far/1", b"x", 2)
            await until(lambda: overlay.done)
            overlay.done[0](FULL)
            assert (await wire.expect(PubRec)) == PubRec(packet_id, FULL)
            # A client without a session forgets the publication: a repetition would be another one.
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("far/#", 2)
            passing = await Wire.connect(broker, "passing")
            packet_id = passing.publish("far/1", b"y", 2)
            await until(lambda: len(overlay.done) == 2)
            overlay.done[1](FULL)
            assert (await passing.expect(PubRec)) == PubRec(packet_id, FULL)

    run(check)


@pytest.mark.invariant(70)
@VERSIONS
def test_both_disks_refuse_and_a_repetition_reaches_receivers_here(
    version: Version, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(session_store, "RETRY_S", 0.01)

    async def check() -> None:
        overlay = Late()
        async with serving({"data": str(tmp_path / "data")}, overlay=overlay) as broker:
            stays = {"properties": {"session_expiry_s": 100}}
            sub = await Wire.connect(broker, "sub", clean_start=False, **stays)
            await sub.subscribe("far/#", 2)
            wire = await device(broker, version)
            database, overlay_refused = broker.exchange.store._database, threading.Event()
            commit, is_full = database.commit, True

            def refuse(changes: object) -> None:
                if is_full:
                    overlay_refused.wait(5)
                    raise NoRoomError("disk is full")
                commit(changes)

            database.commit = refuse
            packet_id = wire.publish("far/1", b"once", 2)
            await until(lambda: overlay.done)
            overlay.done[0](FULL)
            overlay_refused.set()
            ends = await wire.closed() if version == Version.V311 else [await wire.next()]
            assert not [end for end in ends if isinstance(end, PubRec) and not end.code]
            is_full = False
            wire.cut()
            await until(lambda: not broker.exchange.store.is_full)
            wire = await device(broker, version)
            wire.publish("far/1", b"once", 2, packet_id=packet_id, dup=True)
            await until(lambda: len(overlay.done) == 2)
            await accepted(wire, overlay, packet_id)
            sub.cut()  # its broker may have ended the connection, to take the first copy back
            sub = await Wire.connect(broker, "sub", clean_start=False, **stays)
            assert await sub.published() == [("far/1", b"once")]

    run(check)
