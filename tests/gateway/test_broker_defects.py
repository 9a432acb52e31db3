"""Defects of amqtt 0.12.1 that our broker must not inherit, one test each."""

from __future__ import annotations

import asyncio
import logging

import pytest
from amqtt.contexts import BrokerConfig

from gateway.base.limits import Limits
from gateway.broker.edge_broker import EdgeBroker
from gateway.mqtt5.packets import Disconnect, PubAck, Publish, PubRec, PubRel, Version, Will
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving
from tests.waits import until

V3, V5 = Version.V311, Version.V5


def test_keep_alive_is_enforced_so_the_will_of_a_half_open_client_fires() -> None:
    async def check() -> None:
        async with serving() as broker:
            watch = await Wire.connect(broker, "watch")
            await watch.subscribe("will")
            silent = await Wire.connect(broker, "silent", keep_alive_s=10, will=Will("will", b"silent"))
            start = broker.now()
            broker.do_due_work(start + 14)
            assert await watch.published() == []
            broker.do_due_work(start + 16)
            assert await watch.published() == [("will", b"silent")]
            (bye,) = await silent.closed()
            assert isinstance(bye, Disconnect)
            assert bye.code == ReasonCode.KEEP_ALIVE_TIMEOUT

    asyncio.run(check())


def test_timeout_disconnect_delay_lengthens_the_keep_alive() -> None:
    async def check() -> None:
        async with serving({"timeout_disconnect_delay": 5}) as broker:
            await Wire.connect(broker, "c", keep_alive_s=10)
            start = broker.now()
            broker.do_due_work(start + 19)
            assert dict(broker.clients()) == {"c": True}
            broker.do_due_work(start + 21)
            assert dict(broker.clients()) == {}

    asyncio.run(check())


def test_delivery_uses_the_smaller_of_both_qos() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker, "c", V3)
            await wire.subscribe("t", 2)
            wire.publish("t", b"0", 0)
            assert (await wire.expect(Publish)).qos == 0

    asyncio.run(check())


def test_what_was_in_flight_is_sent_again_after_a_reconnect() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub = await Wire.connect(broker, "sub", V3, clean_start=False)
            await sub.subscribe("t", 2)
            pub = await Wire.connect(broker, "pub")
            pub.publish("t", b"1", 1)
            await pub.expect(PubAck)
            two = pub.publish("t", b"2", 2)
            await pub.expect(PubRec)
            pub.send(PubRel(two))
            first, second = await sub.expect(Publish), await sub.expect(Publish)
            sub.send(PubRec(second.packet_id))
            await sub.expect(PubRel)
            sub.cut()
            await until(lambda: not dict(broker.clients())["sub"])
            sub = await Wire.connect(broker, "sub", V3, clean_start=False)
            assert (await sub.expect(PubRel)).packet_id == second.packet_id
            again = await sub.expect(Publish)
            assert (again.payload, again.dup, again.packet_id) == (b"1", True, first.packet_id)

    asyncio.run(check())


def test_an_anonymous_session_has_an_offline_queue() -> None:
    async def check() -> None:
        async with serving() as broker:
            sub = await Wire.connect(broker, "sub", V3, clean_start=False)
            await sub.subscribe("t", 1)
            sub.cut()
            await until(lambda: not dict(broker.clients())["sub"])
            pub = await Wire.connect(broker, "pub", V3)
            pub.publish("t", b"kept", 1)
            await pub.expect(PubAck)
            sub = await Wire.connect(broker, "sub", V3, clean_start=False)
            assert await sub.published() == [("t", b"kept")]

    asyncio.run(check())


@pytest.mark.parametrize("version", [V3, V5])
def test_a_malformed_packet_ends_the_connection(version: Version) -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker, "c", version)
            wire.raw(b"\x36\x05\x00\x01a\x00\x01")
            farewell = await wire.closed()
            assert [type(packet) for packet in farewell] == ([Disconnect] if version == V5 else [])

    asyncio.run(check())


def test_mqtt_3_1_is_served_and_an_unknown_version_gets_a_connack() -> None:
    async def check() -> None:
        async with serving() as broker:
            old = await Wire.connect(broker, "old", Version.V31)
            assert old.connack is not None
            assert old.connack.code == 0
            future = await Wire.open(broker, V3)
            future.raw(b"\x10\x0e\x00\x04MQTT\x09\x02\x00\x00\x00\x02ab")
            assert await future.reader.read() == b"\x20\x02\x00\x01"

    asyncio.run(check())


def test_queues_are_bounded_and_the_newest_survive() -> None:
    async def check() -> None:
        async with serving({"limits": {"queue_messages": 3}}) as broker:
            sub = await Wire.connect(broker, "sub", V3, clean_start=False)
            await sub.subscribe("t", 1)
            sub.cut()
            await until(lambda: not dict(broker.clients())["sub"])
            pub = await Wire.connect(broker, "pub")
            for number in range(9):
                pub.publish("t", b"%d" % number, 1)
            await pub.barrier()
            sub = await Wire.connect(broker, "sub", V3, clean_start=False)
            assert [payload for _, payload in await sub.published()] == [b"6", b"7", b"8"]

    asyncio.run(check())


def test_packet_sizes_are_bounded_before_the_packet_is_there() -> None:
    async def check() -> None:
        async with serving({"limits": {"packet_bytes": 1_000}}) as broker:
            wire = await Wire.connect(broker)
            assert wire.connack is not None
            assert wire.connack.properties.maximum_packet_size == 1_000
            wire.raw(b"\x30\xff\xff\xff\x7f")  # announces 256 MiB and sends nothing of it
            (bye,) = await wire.closed()
            assert isinstance(bye, Disconnect)
            assert bye.code == ReasonCode.PACKET_TOO_LARGE

    asyncio.run(check())


def test_clients_may_publish_to_dollar_topics() -> None:
    async def check() -> None:
        async with serving() as broker:
            wire = await Wire.connect(broker)
            await wire.subscribe("$mine/+")
            await wire.subscribe("#")
            wire.publish("$mine/a")
            assert await wire.published() == [("$mine/a", b"x")]

    asyncio.run(check())


def test_only_configured_plugins_are_loaded_and_packets_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        async with serving() as broker:
            assert broker.plugins_manager.plugins == []
            wire = await Wire.connect(broker)
            await wire.subscribe("t")
            with caplog.at_level(logging.DEBUG):
                wire.publish("t", b"payload of a client")
                await wire.barrier()
            ours = [record for record in caplog.records if record.name.split(".")[0] in ("amqtt", "veilmq")]
            assert ours == []

    asyncio.run(check())


@pytest.mark.parametrize("version", [V3, V5])
def test_without_plugins_and_permission_nobody_gets_in(version: Version) -> None:
    async def check() -> None:
        async with serving({"allow_anonymous": False}) as broker:
            wire = await Wire.connect(broker, "c", version)
            assert wire.connack is not None
            assert wire.connack.code == (ReasonCode.NOT_AUTHORIZED if version == V5 else 5)
            assert await wire.closed() == []

    asyncio.run(check())


def test_an_empty_configuration_loads_no_default_plugins() -> None:
    async def check() -> None:
        broker = EdgeBroker()
        assert broker.plugins_manager.plugins == []
        # What amqtt would have loaded: two loggers, $SYS, and everybody let in.
        assert len(BrokerConfig().plugins) == 4
        assert broker.limits == Limits()

    asyncio.run(check())
