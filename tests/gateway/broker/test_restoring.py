"""What a former process left on disk is back before the first connection: sessions, flows, wills, retained messages."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.mqtt5.packets import (
    Disconnect,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire
from tests.gateway.sessions.test_store import LASTING, durable, image
from tests.waits import until


def test_sessions_flows_and_retained_messages_survive(tmp_path: Path) -> None:
    async def before() -> Path:
        async with durable(tmp_path / "a") as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            await sub.subscribe("a/+", 2, identifier=7)
            pub = await Wire.connect(broker, "pub", **LASTING)
            for number, qos in enumerate((1, 2, 2), start=1):
                pub.publish("a/b", b"%d" % number, qos, properties={"user": (("k", "v"),)})
            assert [type(await pub.next()) for _ in range(3)] == [PubAck, PubRec, PubRec]
            got = [await sub.expect(Publish) for _ in range(3)]
            sub.send(PubRec(got[1].packet_id))
            assert (await sub.expect(PubRel)).packet_id == got[1].packet_id
            sub.cut()
            await until(lambda: broker.lifecycle.clients["sub"].connection is None)
            pub.publish("a/c", b"queued", 1, properties={"message_expiry_s": 500})
            pub.publish("r/1", b"first", 0, retain=True)
            pub.publish("r/1", b"kept", 1, retain=True)
            pub.publish("r/2", b"gone", 1, retain=True)
            pub.publish("r/2", b"", 1, retain=True)
            assert [type(await pub.next()) for _ in range(4)] == [PubAck] * 4
            return await image(broker, tmp_path / "a", tmp_path / "b")

    async def after(directory: Path) -> None:
        async with durable(directory) as broker:
            sub = await Wire.connect(broker, "sub", **LASTING)
            assert sub.connack is not None
            assert sub.connack.session_present
            packets = await sub.barrier()
            assert isinstance(packets[0], PubRel)
            assert packets[0].packet_id == 2
            in_flight, other, queued = packets[1:]
            assert isinstance(in_flight, Publish)
            assert (in_flight.payload, in_flight.dup, in_flight.packet_id) == (b"1", True, 1)
            assert in_flight.properties.subscription_ids == (7,)
            assert in_flight.properties.user == (("k", "v"),)
            assert isinstance(other, Publish)
            assert (other.payload, other.qos, other.dup, other.packet_id) == (b"3", 2, True, 3)
            assert isinstance(queued, Publish)
            assert (queued.payload, queued.dup) == (b"queued", False)
            assert 400 < (queued.properties.message_expiry_s or 0) <= 500
            pub = await Wire.connect(broker, "pub", **LASTING)
            pub.publish("a/b", b"3", 2, packet_id=3, dup=True)  # its PUBREC may have been lost
            assert isinstance(await pub.next(), PubRec)
            pub.send(PubRel(3))
            assert (await pub.expect(PubComp)).code == 0
            assert await sub.barrier() == []
            pub.publish("a/b", b"live", 1)
            assert (await sub.expect(Publish)).payload == b"live"
            other_client = await Wire.connect(broker)
            await other_client.subscribe("r/#")
            assert await other_client.published() == [("r/1", b"kept")]

    asyncio.run(after(asyncio.run(before())))


def test_a_session_expires_by_the_clock_although_the_broker_was_down(tmp_path: Path) -> None:
    async def use() -> None:
        async with durable(tmp_path / "a") as broker:
            gone = await Wire.connect(broker, "gone", clean_start=False, properties={"session_expiry_s": 500})
            await gone.subscribe("a", 1)
            left_at = broker.now()
            gone.send(Disconnect(0))
            await gone.closed()
            stays = await Wire.connect(broker, "stays", **LASTING)
            await stays.subscribe("a", 1)
            copy = await image(broker, tmp_path / "a", tmp_path / "b")
        async with durable(copy) as broker:
            assert set(broker.lifecycle.clients) == {"gone", "stays"}
            # The absence of whoever was connected begins with the restart, that of the other before.
            started_at = broker.now()
            broker.do_due_work(left_at + 499)
            assert set(broker.lifecycle.clients) == {"gone", "stays"}
            broker.do_due_work(started_at + 500)
            assert set(broker.lifecycle.clients) == {"stays"}
            broker.do_due_work(started_at + 1001)
            assert not broker.lifecycle.clients
            assert not broker.local.local_filters()

    asyncio.run(use())


@pytest.mark.parametrize("comes_back", [False, True])
def test_the_will_of_a_client_that_died_with_the_broker(tmp_path: Path, comes_back: bool) -> None:
    async def use() -> None:
        async with durable(tmp_path / "a") as broker:
            watcher = await Wire.connect(broker, "watcher", **LASTING)
            await watcher.subscribe("will/#", 1)
            delayed = Will("will/delayed", b"late", 1, True, Properties(will_delay_s=50))
            await Wire.connect(broker, "delayed", will=delayed, **LASTING)
            await Wire.connect(broker, "clean", will=Will("will/clean", b"now", 1))
            said_goodbye = await Wire.connect(broker, "polite", will=Will("will/polite", b"never", 1))
            said_goodbye.send(Disconnect(0))
            await said_goodbye.closed()
            copy = await image(broker, tmp_path / "a", tmp_path / "b")
        async with durable(copy) as broker:
            now = broker.now()
            broker.do_due_work(now + 1)
            watcher = await Wire.connect(broker, "watcher", **LASTING)
            assert await watcher.published() == [("will/clean", b"now")]
            if comes_back:
                await Wire.connect(broker, "delayed", **LASTING)
            broker.do_due_work(now + 49)
            assert await watcher.published() == []
            broker.do_due_work(now + 60)
            assert await watcher.published() == ([] if comes_back else [("will/delayed", b"late")])
            again = await image(broker, copy, tmp_path / "c")
        async with durable(again) as broker:
            assert set(broker.lifecycle.clients) == {"watcher", "delayed"}
            broker.do_due_work(broker.now() + 100)
            watcher = await Wire.connect(broker, "watcher", **LASTING)
            assert await watcher.published() == []  # a will is published once

    asyncio.run(use())


def test_another_user_inherits_nothing_after_a_restart(tmp_path: Path) -> None:
    async def use() -> None:
        passwords = tmp_path / "passwords"
        passwords.write_text("")
        async with durable(tmp_path / "a") as broker:
            await (await Wire.connect(broker, "me", **LASTING)).subscribe("secret", 1)
            copy = await image(broker, tmp_path / "a", tmp_path / "b")
        async with durable(copy) as broker:
            view = broker.lifecycle.clients["me"].view
            view.username, view.is_anonymous = "somebody", False
            wire = await Wire.connect(broker, "me", **LASTING)
            assert wire.connack is not None
            assert wire.connack.code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            assert broker.local.local_filters(), "it is somebody's"

    asyncio.run(use())


@pytest.mark.parametrize("is_set_right", [True, False])
def test_a_session_of_a_week_survives_a_start_with_last_years_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set_right: bool
) -> None:
    """The clock is put right while the broker runs, or not before the next start."""
    true_time, wrong_s = time.time, [-400 * 86_400.0]
    monkeypatch.setattr(time, "time", lambda: true_time() + wrong_s[0])

    async def before() -> None:
        async with durable(tmp_path) as broker:
            away = await Wire.connect(broker, "away", properties={"session_expiry_s": 7 * 86_400})
            await away.subscribe("y", 1)
            away.cut()
            pub = await Wire.connect(broker, "pub")
            pub.publish("y", b"queued", 1, properties={"message_expiry_s": 86_400})
            pub.publish("r", b"kept", 1, retain=True, properties={"message_expiry_s": 86_400})
            for _ in range(2):
                await pub.expect(PubAck)
            if is_set_right:
                wrong_s[0] = 0.0

    async def after() -> None:
        wrong_s[0] = 0.0
        async with durable(tmp_path) as broker:
            away = await Wire.connect(broker, "away", clean_start=False, properties={"session_expiry_s": 7 * 86_400})
            assert away.connack is not None
            assert away.connack.session_present
            await away.subscribe("r", 1)
            got = {one.payload: one.properties.message_expiry_s for one in await away.barrier()
                   if isinstance(one, Publish)}  # fmt: skip
            assert set(got) == {b"queued", b"kept"}
            assert all(left is not None and 86_300 < left <= 86_400 for left in got.values()), got

    asyncio.run(before())
    asyncio.run(after())
