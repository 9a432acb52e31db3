"""A client that comes back by itself: what it says of its connection, what it takes, and what becomes of it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client.complaints import ClientError
from gateway.client.mqtt_client import PACKET_BYTES_MAX, MqttClient
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import MalformedPacket, ReasonCode
from tests.gateway.harness import on_loop, serving
from tests.waits import until


@on_loop
async def test_a_connection_that_stands_takes_and_brings_messages() -> None:
    async with serving() as broker:
        client = MqttClient("127.0.0.1", broker.port(), client_id="c")
        got: list[Publish] = []
        done: list[str] = []
        client.on_publish = got.append
        assert not client.connected
        assert not client.publish("t", b"early", 1), "nothing survives a connection, and there is none"
        await client.connect()
        assert client.connected
        assert (client.last_error, client.session_present, client.figures.connections) == ("", False, 1)
        assert client.packet_limit == 1 << 20
        client.subscribe("t", 1, on_answer=lambda code: done.append(f"suback {code}"))
        assert client.publish("t", b"x", 1, properties=(("k", "v"),), on_ack=lambda: done.append("acknowledged"))
        await until(lambda: len(got) == 1 and len(done) == 2)
        assert (got[0].payload, got[0].properties.user) == (b"x", (("k", "v"),))
        assert set(done) == {"suback 1", "acknowledged"}
        assert (client.figures.sent, client.figures.received, client.load) == (1, 1, (0, 0, 0))
        await client.close()
        assert not client.connected


@on_loop
async def test_with_manual_acknowledgement_the_caller_says_when() -> None:
    async with serving({"limits": {"in_flight": 1}}) as broker:
        client = MqttClient("127.0.0.1", broker.port(), manual_ack=True)
        got: list[Publish] = []
        client.on_publish = got.append
        await client.connect()
        client.subscribe("t", 1)
        for payload in (b"1", b"2"):
            client.publish("t", payload, 1)
        await until(lambda: bool(got))
        client.publish("other", b"", 1, on_ack=lambda: got.append(got[0]))
        await until(lambda: len(got) == 2)
        assert got[1] is got[0], "the second message waits, other packets do not"
        client.acknowledge(got[0])
        await until(lambda: len(got) == 3)
        assert got[2].payload == b"2"
        client.acknowledge_all(got[2:])
        await client.close()


@on_loop
async def test_who_is_refused_is_told_why_once() -> None:
    async with serving({"allow_anonymous": False}) as broker:
        client = MqttClient("127.0.0.1", broker.port())
        with pytest.raises(ClientError, match="refused the connection") as caught:
            await client.connect()
        assert caught.value.code in (ReasonCode.NOT_AUTHORIZED, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        assert not client.connected


@on_loop
async def test_an_offer_that_is_no_use_ends_the_connection() -> None:
    async with serving() as broker:
        client = MqttClient("127.0.0.1", broker.port(), unusable=lambda connack: "takes too little")
        with pytest.raises(ClientError, match="takes too little"):
            await client.connect()


@on_loop
async def test_nobody_there_is_one_line_that_names_the_address() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    client = MqttClient("127.0.0.1", port)
    with pytest.raises(ClientError, match=f"127.0.0.1:{port}") as caught:
        await client.connect()
    assert "\n" not in str(caught.value)
    assert client.packet_limit == PACKET_BYTES_MAX


@on_loop
async def test_what_does_not_speak_mqtt_5_is_named() -> None:
    for said, words in ((b"\x20\x02\x00\x01", "MQTT 5"), (b"\x20" + b"\xff" * 5, "not MQTT:")):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes = said) -> None:
            await reader.read(1)
            writer.write(said)
            await writer.drain()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client = MqttClient("127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(ClientError, match=words):
                await client.connect()


@on_loop
async def test_a_session_survives_and_what_waited_is_sent_when_it_is_back() -> None:
    async with serving() as broker:
        client = MqttClient(
            "127.0.0.1", broker.port(), client_id="c", clean_start=False, session_expiry_s=60, random=lambda: 0.0
        )  # fmt: skip
        ups: list[bool] = []
        got: list[bytes] = []
        client.on_up = lambda: ups.append(client.session_present)
        client.on_publish = lambda publish: got.append(publish.payload)
        await client.connect()
        client.subscribe("t", 1)
        client.publish("t", b"1", 1)
        await until(lambda: got == [b"1"])
        assert client._out.transport is not None
        client._out.transport.abort()
        await until(lambda: not client.connected)
        assert client.publish("t", b"2", 1), "it waits for the connection"
        assert not client.publish("t", b"lost", 0)
        assert client.load[1] == 1
        await until(lambda: got == [b"1", b"2"])
        assert ups == [False, True]
        assert client.figures.connections == 2
        await client.close()


@on_loop
async def test_what_the_server_does_not_take_is_told_to_who_asks_to_know() -> None:
    async with serving({"limits": {"packet_bytes": 1000}}) as broker:
        client = MqttClient("127.0.0.1", broker.port())
        await client.connect()
        refused: list[int] = []
        assert not client.publish("t", bytes(2000), 1)
        assert client.publish("t", bytes(2000), 1, on_refused=refused.append)
        assert refused == [ReasonCode.PACKET_TOO_LARGE]
        assert "raise its limits" in client.last_error
        with pytest.raises(MalformedPacket):
            client.publish("a/#", b"")
        assert client.connected
        await client.close()
