"""What the server tells in CONNACK besides its limits: assigned client id, keep-alive, response information."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.mqtt5.packets import ConnAck, Disconnect, Version
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, serving


async def told(broker: Any, client_id: str = "c", **fields: Any) -> Any:
    """The properties of a CONNACK that accepts."""
    wire = await Wire.connect(broker, client_id, **fields)
    assert isinstance(wire.connack, ConnAck)
    assert wire.connack.code == 0
    return wire.connack.properties


def test_an_assigned_client_id_is_told_and_can_be_used_to_come_back() -> None:
    async def check() -> None:
        async with serving() as broker:
            keep: Any = {"properties": {"session_expiry_s": 100}}
            first, second = await told(broker, "", **keep), await told(broker, "", **keep)
            assert first.assigned_client_id
            assert first.assigned_client_id != second.assigned_client_id
            again = await Wire.connect(broker, first.assigned_client_id, clean_start=False, **keep)
            assert again.connack is not None
            assert again.connack.session_present
            assert again.connack.properties.assigned_client_id is None

    asyncio.run(check())


@pytest.mark.parametrize(("asked", "granted"), [(0, 30), (31, 30), (65_535, 30), (30, None), (1, None)])
def test_the_server_shortens_keep_alive_and_keeps_to_it(asked: int, granted: int | None) -> None:
    async def check() -> None:
        async with serving({"limits": {"keep_alive_max_s": 30}}) as broker:
            wire = await Wire.connect(broker, "c", keep_alive_s=asked)
            assert wire.connack is not None
            assert wire.connack.properties.server_keep_alive_s == granted
            used = granted or asked
            await wire.barrier()
            broker.do_due_work(broker.now() + 1.5 * used - 0.5)
            await wire.barrier()
            broker.do_due_work(broker.now() + 1.5 * used + 0.5)
            farewell = await wire.next()
            assert isinstance(farewell, Disconnect)
            assert farewell.code == ReasonCode.KEEP_ALIVE_TIMEOUT

    asyncio.run(check())


def test_without_a_bound_every_keep_alive_is_the_clients() -> None:
    async def check() -> None:
        async with serving() as broker:
            for asked in (0, 65_535):
                assert (await told(broker, keep_alive_s=asked)).server_keep_alive_s is None

    asyncio.run(check())


def test_a_client_of_mqtt_3_cannot_be_told_and_keeps_its_keep_alive() -> None:
    async def check() -> None:
        async with serving({"limits": {"keep_alive_max_s": 30}}) as broker:
            wire = await Wire.connect(broker, "c", Version.V311, keep_alive_s=600)
            broker.do_due_work(broker.now() + 800)
            await wire.barrier()

    asyncio.run(check())


@pytest.mark.parametrize(
    ("client_id", "asks", "answer"),
    [
        ("pump-1", 1, "answers/pump-1"),
        ("pump-1", 0, None),  # MQTT-3.1.2-28
        ("pump-1", None, None),
        ("pump/1", 1, None),  # would name the topics of another
        ("#", 1, None),
    ],
)
def test_response_information_is_for_clients_that_ask(client_id: str, asks: int | None, answer: str | None) -> None:
    async def check() -> None:
        async with serving({"response_information": "answers/{client_id}"}) as broker:
            properties = await told(broker, client_id, properties={"request_response_information": asks})
            assert properties.response_information == answer
        async with serving() as broker:
            properties = await told(broker, client_id, properties={"request_response_information": 1})
            assert properties.response_information is None

    asyncio.run(check())


def test_response_information_names_an_assigned_client_id() -> None:
    async def check() -> None:
        async with serving({"response_information": "answers/{client_id}"}) as broker:
            properties = await told(broker, "", properties={"request_response_information": 1})
            assert properties.response_information == f"answers/{properties.assigned_client_id}"

    asyncio.run(check())


def test_response_topic_and_correlation_data_travel_from_request_to_answer() -> None:
    async def check() -> None:
        async with serving({"response_information": "answers/{client_id}"}) as broker:
            asker, device = await Wire.connect(broker, "asker"), await Wire.connect(broker, "device")
            await asker.subscribe("answers/asker")
            await device.subscribe("requests")
            request = {"response_topic": "answers/asker", "correlation_data": b"7"}
            asker.publish("requests", b"how much?", properties=request)
            got: Any = await device.next()
            assert got.properties.response_topic == "answers/asker"
            back = {"correlation_data": got.properties.correlation_data}
            device.publish(got.properties.response_topic, b"42", properties=back)
            answer: Any = await asker.next()
            assert (answer.payload, answer.properties.correlation_data) == (b"42", b"7")

    asyncio.run(check())
