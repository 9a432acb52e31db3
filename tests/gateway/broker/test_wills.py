"""Wills: when they are published, and one on which a plugin thinks for long while its client is back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest
from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin

from bridge.devices.devices import Devices
from bridge.devices.life_evidence import DeviceHealth
from gateway.broker import edge_broker
from gateway.mqtt5.packets import Disconnect, Properties, PubAck, Publish, Version, Will
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving
from tests.gateway.traced_site import Site
from tests.waits import until

THINKS = f"{__name__}.Thinks"
STATE = "homie/5/plug/$state"


class Thinks(BaseTopicPlugin):  # type: ignore[misc]
    """Thinks about the first publication on STATE until it may answer; what comes later it knows at once."""

    asked: ClassVar[int] = 0
    answer: ClassVar[asyncio.Event]
    permits: ClassVar[bool] = True

    async def topic_filtering(
        self, *, session: Any = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        if topic == STATE and action is Action.PUBLISH:
            Thinks.asked += 1
            if Thinks.asked == 1:
                await Thinks.answer.wait()
                return Thinks.permits
        return True


@pytest.fixture(autouse=True)
def thinks() -> None:
    Thinks.asked, Thinks.permits, Thinks.answer = 0, True, asyncio.Event()


WILL = Will(STATE, b"lost", 1, True)
GONE = Will("will", b"gone", 1)


@pytest.mark.parametrize("permits", [True, False])
@pytest.mark.parametrize("how", ["away", "taken over", "clean", "3.1.1", "goodbye"])
def test_a_client_that_is_back_is_heard_after_its_will(how: str, permits: bool) -> None:
    """It was due before it came back, so it is published (MQTT 5 section 3.1.2.5), and before what comes after it."""

    async def scenario() -> None:
        Thinks.permits = permits
        async with serving({"plugins": {THINKS: {}}}) as broker:
            reader = await Wire.connect(broker, "reader")
            assert await reader.subscribe("homie/#", 1) == 1
            version = Version.V311 if how == "3.1.1" else Version.V5
            former = await Wire.connect(broker, "plug", version, will=WILL, clean_start=how == "clean")
            if how == "goodbye":
                former.send(Disconnect(0x04))
            elif how != "taken over":
                former.cut()
            if how != "taken over":
                await until(lambda: Thinks.asked == 1)
            plug = await Wire.connect(broker, "plug", version, clean_start=how == "clean")
            plug.publish(STATE, b"ready", qos=1, retain=True)
            await until(lambda: Thinks.asked == 1)
            assert await reader.published() == []
            other = await Wire.connect(broker, "other")  # waits for nobody
            other.publish("homie/5/lamp/$state", b"ready", qos=1)
            await other.expect(PubAck)
            assert [payload for _, payload in await reader.published()] == [b"ready"]
            Thinks.answer.set()
            await plug.expect(PubAck)
            told = [b"lost", b"ready"] if permits else [b"ready"]
            assert [payload for _, payload in await reader.published()] == told
            late = await Wire.connect(broker, "late")
            assert await late.subscribe(STATE, 1) == 1
            assert await late.published() == [(STATE, b"ready")]

    asyncio.run(scenario())


def test_who_leaves_again_meanwhile_is_heard_in_the_same_order() -> None:
    """The second connection's will waits behind its publications, and those behind the first one's will."""

    async def scenario() -> None:
        async with serving({"plugins": {THINKS: {}}}) as broker:
            reader = await Wire.connect(broker, "reader")
            assert await reader.subscribe("homie/#", 1) == 1
            (await Wire.connect(broker, "plug", will=WILL)).cut()
            await until(lambda: Thinks.asked == 1)
            again = await Wire.connect(broker, "plug", will=Will(STATE, b"lost again", 1, True))
            again.publish(STATE, b"ready", qos=1)
            again.send(Disconnect(0x04))
            await again.writer.drain()
            Thinks.answer.set()
            told: list[bytes] = []
            while len(told) < 3:
                told += [payload for _, payload in await reader.published()]
            assert told == [b"lost", b"ready", b"lost again"]

    asyncio.run(scenario())


def test_a_will_that_finds_no_room_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_broker, "WAITING_PUBLICATIONS", 0)

    async def scenario() -> None:
        async with serving({"plugins": {THINKS: {}}}) as broker:
            former = await Wire.connect(broker, "plug", will=WILL)
            former.cut()
            await until(lambda: "plug" not in broker.lifecycle.clients)
            plug = await Wire.connect(broker, "plug")
            plug.publish("other", b"ready", qos=1)
            await plug.expect(PubAck)
            assert not broker.exchange.undecided

    asyncio.run(scenario())


@pytest.mark.long
def test_the_will_of_a_former_connection_is_no_death_of_who_is_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    traces = site.config()["traces"] | {"devices": {"owner": str(site.credentials("works")), "clients": ["plug"]}}
    plugins: dict[str, Any] = {THINKS: {}, "amqtt.plugins.authentication.AnonymousAuthPlugin": {}}

    async def scenario() -> None:
        async with site.serving(traces=traces, plugins=plugins, data=str(tmp_path / "data")) as broker:
            devices: Devices = broker.exchange.tracing._devices._devices  # type: ignore[union-attr]
            former = await Wire.connect(broker, "plug", will=WILL)
            former.publish("x", b"1", qos=1)
            await former.expect(PubAck)
            await until(lambda: (known := devices.device("plug")) is not None and known.told is DeviceHealth.ALIVE)
            former.cut()
            await until(lambda: Thinks.asked == 1)
            plug = await Wire.connect(broker, "plug")
            Thinks.answer.set()
            plug.publish("x", b"1", qos=1)
            await plug.expect(PubAck)
            assert broker.exchange.retained[STATE].data == b"lost"
            known = devices.device("plug")
            assert known is not None
            assert (known.evidence.words, known.evidence.link and known.evidence.link.willed) == ({}, False)

    asyncio.run(scenario())


# ---------------------------------------------------------------------------------------------------- usually


def test_a_will_is_published_when_the_connection_breaks_and_not_after_disconnect() -> None:
    async def check() -> None:
        async with serving() as broker:
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("will")
            polite = await Wire.connect(broker, "polite", will=GONE)
            polite.send(Disconnect())
            await polite.closed()
            broken = await Wire.connect(broker, "broken", will=Will("will", b"broken", retain=True))
            broken.cut()
            assert (await watch.expect(Publish)).payload == b"broken"
            await watch.subscribe("will")
            assert (await watch.expect(Publish)).retain
            with_will = await Wire.connect(broker, "c", will=GONE)
            with_will.send(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
            assert (await watch.expect(Publish)).payload == b"gone"

    asyncio.run(check())


def test_a_will_waits_for_its_delay_and_not_longer_than_the_session() -> None:
    async def check() -> None:
        async with serving() as broker:
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("will/+")
            for name, delay_s, expiry_s in (("a", 10, 50), ("b", 99, 5)):
                will = Will(f"will/{name}", b"x", properties=Properties(will_delay_s=delay_s))
                wire = await Wire.connect(broker, name, will=will, properties={"session_expiry_s": expiry_s})
                wire.cut()
            await until(lambda: dict(broker.clients()) == {"watch": True, "a": False, "b": False})
            start = broker.now()
            broker.do_due_work(start + 4)
            assert await watch.published() == []
            broker.do_due_work(start + 6)
            assert await watch.published() == [("will/b", b"x")]
            back = await Wire.connect(broker, "a", clean_start=False)
            broker.do_due_work(start + 20)
            assert await watch.published() == []
            assert back.connack is not None
            assert back.connack.session_present

    asyncio.run(check())
