"""Listeners behind a proxy: the client of the header counts; headers are bounded, and from named addresses only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.base import ConfigError
from gateway.base.config import parse
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import ConnAck, Connect, Version
from tests.gateway.certificates import Authority
from tests.gateway.clients.test_bounds import reached
from tests.gateway.harness import Wire, serving
from tests.gateway.listening.test_proxy_header import FOUR, version_2

V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 1883\r\n"
V2 = version_2(0x21, 0x11, FOUR)
CONNECT = encode(Connect("c", Version.V5), Version.V5)
WAIT_S = 10.0
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def behind(**of_listener: Any) -> dict[str, Any]:
    return {"listeners": {"default": {"bind": "127.0.0.1:0", "proxy": ["127.0.0.1"], **of_listener}}}


def on(loop: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


async def connected(broker: Any, header: bytes, client_id: str = "c") -> tuple[Wire, ConnAck | None]:
    wire = await Wire.open(broker)
    wire.raw(header + encode(Connect(client_id, Version.V5), Version.V5))
    packet = await wire.next()
    return wire, packet if isinstance(packet, ConnAck) else None


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("header", [V1, V2])
def test_the_address_is_the_clients(loop: Any, header: bytes) -> None:
    async def work() -> None:
        async with serving(behind()) as broker:
            _, connack = await connected(broker, header)
            assert connack is not None
            assert broker.lifecycle.clients["c"].connection.peer == ("192.0.2.7", 40_000)

    on(loop, work())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_header_that_comes_byte_by_byte_is_whole_and_no_byte_behind_it_is_lost(loop: Any) -> None:
    async def work() -> None:
        async with serving(behind()) as broker:
            wire = await Wire.open(broker)
            for byte in V1 + CONNECT:
                wire.raw(bytes([byte]))
                await asyncio.sleep(0)
            assert isinstance(await wire.next(), ConnAck)

    on(loop, work())


def test_bounds_by_address_count_clients_not_the_proxy() -> None:
    async def work() -> None:
        async with serving({**behind(), "limits": {"connections_per_address": 2, "connections": 8}}) as broker:
            kept = [await connected(broker, V1, f"c{number}") for number in range(3)]
            assert [connack is not None for _, connack in kept] == [True, True, False]
            _, other = await connected(broker, V1.replace(b"192.0.2.7", b"192.0.2.8"), "other")
            assert other is not None
            assert reached(broker, "connections_per_address") == 1

    on(asyncio.new_event_loop, work())


def test_failed_logins_are_counted_for_the_client() -> None:
    async def work() -> None:
        config = {**behind(), "allow_anonymous": False, "limits": {"login_failures": 1}}
        async with serving(config) as broker:
            codes = []
            for header in (V1, V1, V1.replace(b"192.0.2.7", b"192.0.2.8")):
                _, connack = await connected(broker, header)
                assert connack is not None
                codes.append(connack.code)
            assert codes[1] == 0x97
            assert codes[0] == codes[2] != 0x97

    on(asyncio.new_event_loop, work())


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", version_2(0x20, 0, b"")])
def test_a_proxy_that_speaks_for_itself_is_counted_as_itself(header: bytes) -> None:
    async def work() -> None:
        async with serving(behind()) as broker:
            _, connack = await connected(broker, header)
            assert connack is not None
            assert broker.lifecycle.clients["c"].connection.peer[0] == "127.0.0.1"

    on(asyncio.new_event_loop, work())


@pytest.mark.parametrize("proxy", [["192.0.2.1"], ["10.0.0.0/8", "::1"]])
def test_nobody_else_is_believed_nor_let_in(proxy: list[str]) -> None:
    async def work() -> None:
        async with serving(behind(proxy=proxy)) as broker:
            for data in (V1 + CONNECT, CONNECT):
                wire = await Wire.open(broker)
                wire.raw(data)
                assert await wire.closed() == []
            assert not broker.lifecycle.clients

    on(asyncio.new_event_loop, work())


def test_without_the_option_a_header_is_no_packet() -> None:
    async def work() -> None:
        async with serving() as broker:
            _, connack = await connected(broker, V1)
            assert connack is None
            assert not broker.lifecycle.clients

    on(asyncio.new_event_loop, work())


def test_a_connection_without_a_header_is_refused() -> None:
    async def work() -> None:
        async with serving(behind()) as broker:
            wire = await Wire.open(broker)
            wire.raw(CONNECT)
            assert await wire.closed() == []

    on(asyncio.new_event_loop, work())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_header_has_its_time(loop: Any) -> None:
    async def work() -> None:
        async with serving({**behind(), "limits": {"connect_timeout_s": 0.2}}) as broker:
            wire = await Wire.open(broker)
            wire.raw(V2[:20])
            assert await wire.closed() == []

    on(loop, work())


def test_of_too_many_that_send_no_header_the_longest_goes() -> None:
    async def work() -> None:
        async with serving({**behind(), "limits": {"half_open": 2}}) as broker:
            first, second = [await Wire.open(broker) for _ in range(2)]
            third, connack = await connected(broker, V1)
            assert connack is not None
            assert await first.closed() == []
            second.raw(V1 + encode(Connect("d", Version.V5), Version.V5))
            assert isinstance(await second.next(), ConnAck)
            third.cut()

    on(asyncio.new_event_loop, work())


@pytest.mark.attack(165)
def test_a_proxy_that_sends_no_headers_cuts_off_nothing_of_another_proxy() -> None:
    """Attack: the oldest of all went, so that one proxy's silent connections ended those of others."""

    async def work() -> None:
        limits = {"limits": {"half_open": 2}}
        async with serving({**behind(proxy=["127.0.0.1", "127.0.0.2"]), **limits}) as broker:
            here = ("127.0.0.2", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port(), local_addr=here)
            silent = [await Wire.open(broker) for _ in range(4)]
            for one in silent[:2]:
                assert await one.closed() == []
            writer.write(V1 + CONNECT)
            assert (await asyncio.wait_for(reader.read(1), WAIT_S))[0] == 0x20, "CONNACK"
            writer.close()

    on(asyncio.new_event_loop, work())


@pytest.mark.parametrize("loop", LOOPS)
def test_tls_begins_behind_the_header(tmp_path: Path, loop: Any) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("localhost")
    files = {"ssl": True, "certfile": str(certfile), "keyfile": str(keyfile)}
    context = ssl.create_default_context(cafile=str(authority.cafile))

    async def work() -> None:
        async with serving(behind(**files)) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port())
            writer.write(V2)
            await writer.start_tls(context, server_hostname="localhost")
            writer.write(CONNECT)
            assert (await asyncio.wait_for(reader.read(4), 5))[:1] == b"\x20"
            assert broker.lifecycle.clients["c"].connection.peer == ("192.0.2.7", 40_000)
            writer.transport.abort()

    on(loop, work())


def test_websockets_have_it_too() -> None:
    async def work() -> None:
        async with serving(behind(type="ws")) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port())
            writer.write(
                V1 + b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
            )
            assert b"101 Switching" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            mask = bytes(4)
            writer.write(b"\x82" + bytes([0x80 | len(CONNECT)]) + mask + CONNECT)
            assert (await asyncio.wait_for(reader.read(3), 5))[2:3] == b"\x20"
            assert broker.lifecycle.clients["c"].connection.peer == ("192.0.2.7", 40_000)
            writer.transport.abort()

    on(asyncio.new_event_loop, work())


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        ({"proxy": ["balancer.example"]}, "write an address such as"),
        ({"proxy": ["10.0.0.1/8"]}, "write an address such as"),
        ({"proxy": ["127.0.0.1"], "bind": "unix:/run/m.sock"}, "proxy is for listeners of clients over TCP"),
        ({"proxy": ["127.0.0.1"], "overlay": True}, "proxy is for listeners of clients over TCP"),
    ],
)
def test_what_cannot_be_is_one_line(listener: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse({"listeners": {"default": listener}})
