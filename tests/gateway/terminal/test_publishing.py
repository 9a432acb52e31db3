"""Publishing at a terminal: what is acknowledged was taken; what is refused is said with its reason code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.mqtt5.packets import Properties, Publish, Version
from gateway.terminal import Server, TerminalError, from_arguments, publish
from gateway.terminal.publishing import WINDOW
from tests.gateway.harness import Wire, on_loop, serving


@on_loop
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_more_than_a_window_of_messages_comes_in_order(version: Version, qos: int) -> None:
    async with serving() as broker:
        reader = await Wire.connect(broker, "reader")
        await reader.subscribe("t", 0)
        count = WINDOW + 50
        sent = await publish(Server(port=broker.port(), version=version), _numbers(count, qos), within_s=20.0)
        assert sent.messages == count
        got = await reader.published()
        assert [int(payload) for _, payload in got] == list(range(count))


async def _numbers(count: int, qos: int) -> Any:
    for number in range(count):
        yield Publish("t", b"%d" % number, qos)


@on_loop
async def test_a_silent_server_is_given_up_in_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x20\x03\x00\x00\x00")
        while await reader.read(1000):
            pass
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TerminalError, match=r"acknowledged nothing for 0\.2 s"):
            await publish(Server(port=port), from_arguments("t", b"x", 1, False), within_s=0.2)


@on_loop
async def test_a_server_of_3_1_1_that_hangs_up_at_a_message_ends_the_command() -> None:
    ended = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        await reader.read(100)
        writer.write(b"\x20\x02\x00\x00")
        await reader.read(100)
        ended += 1
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TerminalError, match="--mqtt 5 tells the reason"):
            await publish(Server(port=port, version=Version.V311), from_arguments("t", b"x", 1, False), within_s=20.0)
    assert ended == 2


@on_loop
async def test_a_refused_publication_is_one_line_with_its_reason_code() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x20\x03\x00\x00\x00")
        await reader.read(100)
        writer.write(bytes.fromhex("4004000187 00".replace(" ", "")))
        await reader.read(100)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TerminalError, match=r"refused the publication on t: not authorized \(0x87\); give") as seen:
            await publish(Server(port=port), from_arguments("t", b"x", 1, False), within_s=20.0)
    assert "\n" not in str(seen.value)


@on_loop
async def test_properties_that_mqtt_cannot_carry_are_refused_here() -> None:
    async with serving() as broker:
        wrong = Properties(content_type="x" * 70_000)
        with pytest.raises(TerminalError, match="correct the message"):
            await publish(Server(port=broker.port()), from_arguments("t", b"x", 1, False, wrong), within_s=20.0)
