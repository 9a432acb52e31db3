"""`$SYS/broker`: Mosquitto's names, sent when they change, averages that forget."""

from __future__ import annotations

import asyncio

import pytest

from gateway.mqtt5.packets import Disconnect, Version
from gateway.operation.sys_topics import Load
from tests.gateway.harness import Wire, serving

MOSQUITTO = [
    "version",
    "uptime",
    "clients/total",
    "clients/maximum",
    "clients/connected",
    "clients/disconnected",
    "clients/expired",
    "messages/received",
    "messages/sent",
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
    "publish/bytes/received",
    "publish/bytes/sent",
    "bytes/received",
    "bytes/sent",
    "store/messages/count",
    "store/messages/bytes",
    "subscriptions/count",
    "shared_subscriptions/count",
    "load/connections",
    "load/messages/received",
    "load/messages/sent",
    "load/publish/received",
    "load/publish/sent",
    "load/publish/dropped",
    "load/bytes/received",
    "load/bytes/sent",
    "load/sockets",
]


WINDOWS = ("1min", "5min", "15min")


def test_sys_topics_are_those_of_mosquitto_and_say_what_happened() -> None:
    async def check() -> None:
        async with serving() as broker:
            one, two = await Wire.connect(broker, "one"), await Wire.connect(broker, "two")
            await one.subscribe("t")
            await one.subscribe("$share/g/s")
            two.publish("t", b"12345", 1)
            two.publish("kept", b"123", retain=True)
            await two.barrier()
            two.send(Disconnect())
            await two.closed()
            assert broker.operation.sys_topics is not None
            broker.operation.sys_topics.update()
            watch = await Wire.connect(broker, "watch", Version.V311)
            await watch.subscribe("$SYS/broker/#")
            said = {topic.removeprefix("$SYS/broker/"): text.decode() for topic, text in await watch.published()}
            loads = {f"{name}/{window}" for name in MOSQUITTO if name.startswith("load") for window in WINDOWS}
            assert {name for name in MOSQUITTO if not name.startswith("load")} | loads <= set(said)
            assert said["version"].startswith("veilmq version ")
            assert said["uptime"].endswith(" seconds")
            assert (said["clients/connected"], said["clients/total"], said["clients/maximum"]) == ("1", "1", "2")
            assert (said["publish/messages/received"], said["publish/bytes/received"]) == ("2", "8")
            assert (said["publish/messages/sent"], said["publish/bytes/sent"]) == ("1", "5")
            assert (said["subscriptions/count"], said["shared_subscriptions/count"]) == ("2", "1")
            assert int(said["retained messages/count"]) > 30, "its own are retained too, as in Mosquitto"
            assert said["messages/received"] == "8", "2 CONNECT, 2 SUBSCRIBE, 2 PUBLISH, PINGREQ, DISCONNECT"
            assert float(said["load/publish/received/1min"]) > float(said["load/publish/received/15min"]) > 0

    asyncio.run(check())


def test_sys_topics_are_sent_when_they_change_and_can_be_switched_off() -> None:
    async def check() -> None:
        async with serving({"sys_interval": 3_600}) as broker:
            wire = await Wire.connect(broker)
            await wire.subscribe("$SYS/broker/clients/#")
            assert dict(await wire.published())["$SYS/broker/clients/connected"] == b"0"
            assert broker.operation.sys_topics is not None
            broker.operation.sys_topics.update()
            assert dict(await wire.published())["$SYS/broker/clients/connected"] == b"1"
            broker.operation.sys_topics.update()
            assert await wire.published() == []
        async with serving({"sys_interval": 0}) as broker:
            wire = await Wire.connect(broker)
            await wire.subscribe("$SYS/#")
            assert await wire.published() == []

    asyncio.run(check())


def test_sys_topics_take_no_room_of_the_clients_retained_messages() -> None:
    async def check() -> None:
        async with serving({"limits": {"retained_messages": 1}}) as broker:
            wire = await Wire.connect(broker)
            wire.publish("mine", retain=True)
            await wire.subscribe("#")
            assert [topic for topic, _ in await wire.published()] == ["mine"]

    asyncio.run(check())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_beside_amqtts_plugin_ours_win_where_names_meet() -> None:
    async def check() -> None:
        plugin = {"amqtt.plugins.sys.broker.BrokerSysPlugin": {"sys_interval": 3_600}}
        async with serving({"plugins": plugin, "sys_interval": 3_600}) as broker:
            wire = await Wire.connect(broker)
            await broker.internal_message_broadcast("$SYS/broker/uptime", b"forged")
            await broker.retain_message(None, "$SYS/broker/version", b"aMQTT")
            await broker.retain_message(None, "$SYS/broker/cpu/percent", b"3")
            await wire.subscribe("$SYS/#")
            said = dict(await wire.published())
            assert said["$SYS/broker/version"].startswith(b"veilmq")
            assert said["$SYS/broker/uptime"] == b"0 seconds"
            assert said["$SYS/broker/cpu/percent"] == b"3"

    asyncio.run(check())


def test_load_approaches_the_rate_and_forgets_it() -> None:
    load = Load()
    total = 0
    for _ in range(60):
        total += 50
        load.update(total, 10.0)
    one, five, fifteen = (load.per_minute[window] for window in WINDOWS)
    assert one == pytest.approx(300, rel=0.001)
    assert 250 < five < 300
    assert 100 < fifteen < five
    load.update(total, 600.0)
    assert load.per_minute["1min"] < 0.1 < load.per_minute["15min"]
